// A control plane in Go, for one service: `xds:///greeter` goes to the backends on the command line.
//
//	go run . -listen 127.0.0.1:18000 -node laptop 127.0.0.1:50061 127.0.0.1:50062
//
// It serves the first backend. Each line on standard input is the number of the backend to serve
// from then on, or 0 to remove the cluster. -cache chooses one of go-control-plane's caches: a
// snapshot per node, a linear cache per type, or a mux of both.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"strconv"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	router "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const service = "greeter"

func main() {
	address := flag.String("listen", "127.0.0.1:18000", "where to serve xDS")
	node := flag.String("node", "laptop", "the node id in the client's bootstrap")
	kind := flag.String("cache", "snapshot", "snapshot, linear or mux")
	flag.Parse()
	backends := flag.Args()
	if len(backends) == 0 {
		log.Fatal("no backends, wanted at least one host:port")
	}

	served, set, err := newCache(*kind, *node)
	if err != nil {
		log.Fatal(err)
	}
	serve := func(version int, backend string) {
		if err := set(version, backend); err != nil {
			log.Fatal(err)
		}
		fmt.Printf("version %d: %s\n", version, backend)
	}
	serve(1, backends[0])

	socket, err := net.Listen("tcp", *address)
	if err != nil {
		log.Fatal(err)
	}
	grpcServer := grpc.NewServer()
	xds := server.NewServer(context.Background(), served, server.CallbackFuncs{
		StreamRequestFunc: func(_ int64, request *discovery.DiscoveryRequest) error {
			return printNack(request)
		},
		StreamDeltaRequestFunc: func(_ int64, request *discovery.DeltaDiscoveryRequest) error {
			return printNack(request)
		},
	})
	discovery.RegisterAggregatedDiscoveryServiceServer(grpcServer, xds)
	go func() { log.Fatal(grpcServer.Serve(socket)) }()
	fmt.Printf("listening at %s\n", socket.Addr())

	lines := bufio.NewScanner(os.Stdin)
	for version := 2; lines.Scan(); version++ {
		number, err := strconv.Atoi(lines.Text())
		if err != nil || number < 0 || number > len(backends) {
			log.Fatalf("backend is %q, wanted 0 to %d", lines.Text(), len(backends))
		}
		serve(version, append([]string{""}, backends...)[number])
	}
}

// printNack prints the type of a rejected resource, and the error.
func printNack(request interface {
	GetErrorDetail() *rpcstatus.Status
	GetTypeUrl() string
}) error {
	if detail := request.GetErrorDetail(); detail != nil {
		fmt.Printf("refused: %s: %s\n", request.GetTypeUrl(), detail.GetMessage())
	}
	return nil
}

// apiListener is the listener of gRPC clients: no socket, only an HttpConnectionManager.
func apiListener() *listener.Listener {
	return &listener.Listener{
		Name: service,
		ApiListener: &listener.ApiListener{ApiListener: pack(&hcm.HttpConnectionManager{
			RouteSpecifier: &hcm.HttpConnectionManager_Rds{Rds: &hcm.Rds{
				RouteConfigName: service,
				ConfigSource:    ads(),
			}},
			HttpFilters: []*hcm.HttpFilter{{
				Name:       "router",
				ConfigType: &hcm.HttpFilter_TypedConfig{TypedConfig: pack(&router.Router{})},
			}},
		})},
	}
}

func routes() *route.RouteConfiguration {
	return &route.RouteConfiguration{
		Name: service,
		VirtualHosts: []*route.VirtualHost{{
			Name:    service,
			Domains: []string{"*"},
			Routes: []*route.Route{{
				Match: &route.RouteMatch{PathSpecifier: &route.RouteMatch_Prefix{Prefix: "/"}},
				Action: &route.Route_Route{Route: &route.RouteAction{
					ClusterSpecifier: &route.RouteAction_Cluster{Cluster: service},
				}},
			}},
		}},
	}
}

func edsCluster() *cluster.Cluster {
	return &cluster.Cluster{
		Name:                 service,
		ClusterDiscoveryType: &cluster.Cluster_Type{Type: cluster.Cluster_EDS},
		EdsClusterConfig:     &cluster.Cluster_EdsClusterConfig{EdsConfig: ads()},
	}
}

// endpoints has a locality with a weight: gRPC ignores localities without one.
func endpoints(backend string) *endpoint.ClusterLoadAssignment {
	host, portText, err := net.SplitHostPort(backend)
	if err != nil {
		log.Fatal(err)
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		log.Fatal(err)
	}
	socket := &core.SocketAddress{
		Address:       host,
		PortSpecifier: &core.SocketAddress_PortValue{PortValue: uint32(port)},
	}
	return &endpoint.ClusterLoadAssignment{
		ClusterName: service,
		Endpoints: []*endpoint.LocalityLbEndpoints{{
			Locality:            &core.Locality{Zone: "here"},
			LoadBalancingWeight: wrapperspb.UInt32(1),
			LbEndpoints: []*endpoint.LbEndpoint{{
				HostIdentifier: &endpoint.LbEndpoint_Endpoint{Endpoint: &endpoint.Endpoint{
					Address: &core.Address{Address: &core.Address_SocketAddress{SocketAddress: socket}},
				}},
			}},
		}},
	}
}

// ads is the config source of routes and endpoints: the same ADS stream.
func ads() *core.ConfigSource {
	return &core.ConfigSource{
		ResourceApiVersion:    core.ApiVersion_V3,
		ConfigSourceSpecifier: &core.ConfigSource_Ads{Ads: &core.AggregatedConfigSource{}},
	}
}

func pack(message proto.Message) *anypb.Any {
	packed, err := anypb.New(message)
	if err != nil {
		log.Fatal(err)
	}
	return packed
}
