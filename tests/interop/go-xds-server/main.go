// A server of grpc-go that is configured by xDS. Every method returns the name that is given.
//
//	GRPC_XDS_BOOTSTRAP=bootstrap.json go run . -name first
//
// It prints its address, then each change of its mode: SERVING or NOT_SERVING. With xDS
// credentials: a listener without TLS means plain text.
package main

import (
	"flag"
	"fmt"
	"log"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	xdscreds "google.golang.org/grpc/credentials/xds"
	"google.golang.org/grpc/xds"
)

// codec sends and receives bytes as they are.
type codec struct{}

func (codec) Marshal(value any) ([]byte, error) { return *value.(*[]byte), nil }
func (codec) Unmarshal(data []byte, value any) error {
	*value.(*[]byte) = append([]byte(nil), data...)
	return nil
}
func (codec) Name() string { return "proto" }

func main() {
	name := flag.String("name", "", "the reply of every method")
	flag.Parse()
	credentials, err := xdscreds.NewServerCredentials(xdscreds.ServerOptions{FallbackCreds: insecure.NewCredentials()})
	if err != nil {
		log.Fatal(err)
	}
	reply := []byte(*name)
	server, err := xds.NewGRPCServer(
		grpc.Creds(credentials),
		grpc.ForceServerCodec(codec{}),
		grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
			var request []byte
			if err := stream.RecvMsg(&request); err != nil {
				return err
			}
			return stream.SendMsg(&reply)
		}),
		xds.ServingModeCallback(func(_ net.Addr, args xds.ServingModeChangeArgs) {
			if args.Mode == connectivity.ServingModeServing {
				fmt.Println("SERVING")
			} else {
				fmt.Println("NOT_SERVING")
			}
		}),
	)
	if err != nil {
		log.Fatal(err)
	}
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(socket.Addr())
	log.Fatal(server.Serve(socket))
}
