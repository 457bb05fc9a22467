// A client of grpc-go for the table of decisions: commands and replies are lines of JSON; see
// tools/peers/decisions/voice.py for their fields.
package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"log"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	_ "google.golang.org/grpc/xds"
)

type command struct {
	ID           int         `json:"id"`
	Target       string      `json:"target"`
	Method       string      `json:"method"`
	Body         string      `json:"body"`
	Metadata     [][2]string `json:"metadata"`
	Count        int         `json:"count"`
	Concurrent   bool        `json:"concurrent"`
	TimeoutS     float64     `json:"timeout_s"`
	WaitForReady bool        `json:"wait_for_ready"`
}

type rpc struct {
	Code    string   `json:"code"`
	Details string   `json:"details"`
	Reply   string   `json:"reply"`
	Seconds float64  `json:"seconds"`
	Cookies []string `json:"cookies"`
}

type reply struct {
	ID   int   `json:"id"`
	RPCs []rpc `json:"rpcs"`
}

// codec sends and receives bytes as they are. Its name is not part of the content-type.
type codec struct{}

func (codec) Marshal(value any) ([]byte, error) { return *value.(*[]byte), nil }
func (codec) Unmarshal(data []byte, value any) error {
	*value.(*[]byte) = append([]byte(nil), data...)
	return nil
}
func (codec) Name() string { return "" }

var (
	guard    sync.Mutex
	channels = map[string]*grpc.ClientConn{}
	output   = json.NewEncoder(os.Stdout)
)

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var each command
		if err := json.Unmarshal(lines.Bytes(), &each); err != nil {
			log.Fatal(err)
		}
		go run(each)
	}
}

func run(each command) {
	channel := findChannel(each.Target)
	answer := reply{ID: each.ID, RPCs: make([]rpc, each.Count)}
	var group sync.WaitGroup
	for number := range answer.RPCs {
		group.Add(1)
		one := func() {
			defer group.Done()
			answer.RPCs[number] = call(channel, each)
		}
		if each.Concurrent {
			go one()
		} else {
			one()
		}
	}
	group.Wait()
	guard.Lock()
	defer guard.Unlock()
	if err := output.Encode(answer); err != nil {
		log.Fatal(err)
	}
}

func findChannel(target string) *grpc.ClientConn {
	guard.Lock()
	defer guard.Unlock()
	if found, ok := channels[target]; ok {
		return found
	}
	made, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	channels[target] = made
	return made
}

func call(channel *grpc.ClientConn, each command) rpc {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(each.TimeoutS*float64(time.Second)))
	defer cancel()
	for _, pair := range each.Metadata {
		value := pair[1]
		if strings.HasSuffix(pair[0], "-bin") {
			raw, err := base64.StdEncoding.DecodeString(value)
			if err != nil {
				log.Fatal(err)
			}
			value = string(raw)
		}
		ctx = metadata.AppendToOutgoingContext(ctx, pair[0], value)
	}
	var initial, trailers metadata.MD
	request, response := []byte(each.Body), []byte(nil)
	start := time.Now()
	err := channel.Invoke(ctx, each.Method, &request, &response, grpc.ForceCodec(codec{}),
		grpc.WaitForReady(each.WaitForReady), grpc.Header(&initial), grpc.Trailer(&trailers))
	result := status.Convert(err)
	return rpc{
		Code:    codeName(result),
		Details: result.Message(),
		Reply:   string(response),
		Seconds: time.Since(start).Seconds(),
		Cookies: append(append([]string{}, initial["set-cookie"]...), trailers["set-cookie"]...),
	}
}

// codeName is the name as in the other languages: upper case, and CANCELLED with two L.
func codeName(result *status.Status) string {
	if result.Code() == codes.Canceled {
		return "CANCELLED"
	}
	var name strings.Builder
	text := result.Code().String()
	for index, letter := range text {
		if index > 1 && letter >= 'A' && letter <= 'Z' {
			name.WriteByte('_')
		}
		name.WriteRune(letter)
	}
	return strings.ToUpper(name.String())
}
