// istiod serves what Istio sends to gRPC clients without a proxy, from a file of Istio's own kinds.
//
//	istiod FILE ADDRESS
//
// The generators are Istio's (pilot/test/xds has them without Kubernetes). ADDRESS is host:port, or
// unix:PATH. Commands on standard input, one a line:
//
//	reload     reads the file again; prints "reloaded" when the store has the new configuration
//	clients    prints the number of connected xDS clients
//
// The process ends when standard input does.
package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"strings"

	"istio.io/istio/pilot/pkg/config/kube/crd"
	"istio.io/istio/pilot/pkg/model"
	"istio.io/istio/pilot/test/xds"
	"istio.io/istio/pkg/config"
	"istio.io/istio/pkg/log"
)

// process stands in for *testing.T: what would fail a test ends the process.
type process struct{}

func (process) Fail()                     { os.Exit(1) }
func (process) FailNow()                  { os.Exit(1) }
func (process) Fatal(a ...any)            { fail(fmt.Sprint(a...)) }
func (process) Fatalf(s string, a ...any) { fail(fmt.Sprintf(s, a...)) }
func (process) Log(...any)                {}
func (process) Logf(string, ...any)       {}
func (process) Helper()                   {}
func (process) Cleanup(func())            {}
func (process) Skip(...any)               {}

func (process) TempDir() string {
	directory, err := os.MkdirTemp("", "istiod")
	if err != nil {
		fail(err.Error())
	}
	return directory
}

func fail(text string) {
	fmt.Fprintln(os.Stderr, "istiod: error:", text)
	os.Exit(1)
}

// identity is what makes a config the same one in two versions of the file.
type identity struct{ kind, namespace, name string }

func identify(c config.Config) identity {
	return identity{c.GroupVersionKind.String(), c.Namespace, c.Name}
}

// loader brings the store to what the file says.
type loader struct {
	path   string
	store  model.ConfigStoreController
	loaded map[identity]config.Config
}

func (l *loader) reload() error {
	configs, err := parse(l.path)
	if err != nil {
		return err
	}
	next := map[identity]config.Config{}
	for _, c := range configs {
		id := identify(c)
		if _, is := l.loaded[id]; is {
			_, err = l.store.Update(c)
		} else {
			_, err = l.store.Create(c)
		}
		if err != nil {
			return fmt.Errorf("%v: %w", id, err)
		}
		next[id] = c
	}
	for id, c := range l.loaded {
		if _, is := next[id]; is {
			continue
		}
		if err := l.store.Delete(c.GroupVersionKind, c.Name, c.Namespace, nil); err != nil {
			return fmt.Errorf("%v: %w", id, err)
		}
	}
	l.loaded = next
	return nil
}

func parse(path string) ([]config.Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	configs, unknown, err := crd.ParseInputs(string(text))
	if err == nil && len(unknown) > 0 {
		err = fmt.Errorf("%s: unknown kind %s", path, unknown[0].Kind)
	}
	return configs, err
}

func listen(address string) func() (net.Listener, error) {
	return func() (net.Listener, error) {
		if path, isUnix := strings.CutPrefix(address, "unix:"); isUnix {
			return net.Listen("unix", path)
		}
		return net.Listen("tcp", address)
	}
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: istiod FILE ADDRESS")
		os.Exit(2)
	}
	// Standard output has only the answers; Istio's log is off.
	options := log.DefaultOptions()
	options.OutputPaths = []string{"stderr"}
	options.SetDefaultOutputLevel(log.OverrideScopeName, log.NoneLevel)
	if err := log.Configure(options); err != nil {
		fail(err.Error())
	}
	server := xds.NewFakeDiscoveryServer(process{}, xds.FakeOptions{ListenerBuilder: listen(os.Args[2])})
	configs := &loader{path: os.Args[1], store: server.Store()}
	if err := configs.reload(); err != nil {
		fail(err.Error())
	}
	fmt.Println("serving", server.Listener.Addr())
	commands := bufio.NewScanner(os.Stdin)
	for commands.Scan() {
		switch commands.Text() {
		case "reload":
			if err := configs.reload(); err != nil {
				fail(err.Error())
			}
			fmt.Println("reloaded")
		case "clients":
			fmt.Println(len(server.Discovery.AllClients()))
		default:
			fail("unknown command " + commands.Text())
		}
	}
}
