package main

import (
	"context"
	"fmt"
	"strconv"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
)

// set makes a cache serve a backend; without a backend, the cluster and its endpoints are removed.
type set func(version int, backend string) error

// newCache returns a cache of go-control-plane for the server, and its set.
func newCache(kind, node string) (cache.Cache, set, error) {
	switch kind {
	case "snapshot":
		made, set := newSnapshots(node)
		return made, set, nil
	case "linear":
		caches, set := newLinear(resource.ListenerType, resource.RouteType, resource.ClusterType, resource.EndpointType)
		return newMux(caches), set, nil
	case "mux":
		// Routes of each node; clusters and endpoints for all.
		snapshots, setRoutes := newSnapshots(node)
		caches, setClusters := newLinear(resource.ClusterType, resource.EndpointType)
		caches[resource.ListenerType], caches[resource.RouteType] = snapshots, snapshots
		return newMux(caches), func(version int, backend string) error {
			if err := setClusters(version, backend); err != nil {
				return err
			}
			return setRoutes(version, backend)
		}, nil
	}
	return nil, nil, fmt.Errorf("cache is %q, wanted snapshot, linear or mux", kind)
}

// newSnapshots has all resources of a node, at one version.
func newSnapshots(node string) (cache.Cache, set) {
	made := cache.NewSnapshotCache(true, cache.IDHash{}, nil)
	return made, func(version int, backend string) error {
		snapshot, err := cache.NewSnapshot(strconv.Itoa(version), resources(backend))
		if err != nil {
			return err
		}
		// Not snapshot.Consistent(): it reads the filter chains of listeners, and an API listener
		// has none, so it reports the route config as unreferenced.
		return made.SetSnapshot(context.Background(), node, snapshot)
	}
}

// newLinear has a cache for each type, whose resources have versions of their own.
func newLinear(kinds ...resource.Type) (map[string]cache.Cache, set) {
	caches := map[string]cache.Cache{}
	for _, kind := range kinds {
		caches[kind] = cache.NewLinearCache(kind)
	}
	return caches, func(_ int, backend string) error {
		found := resources(backend)
		for _, kind := range kinds {
			linear := caches[kind].(*cache.LinearCache)
			if len(found[kind]) == 0 {
				if err := linear.DeleteResource(service); err != nil {
					return err
				}
				continue
			}
			if err := linear.UpdateResource(service, found[kind][0]); err != nil {
				return err
			}
		}
		return nil
	}
}

// newMux sends requests to the cache of their type.
func newMux(caches map[string]cache.Cache) cache.Cache {
	return &cache.MuxCache{
		Classify:      func(request *discovery.DiscoveryRequest) string { return request.GetTypeUrl() },
		ClassifyDelta: func(request *discovery.DeltaDiscoveryRequest) string { return request.GetTypeUrl() },
		Caches:        caches,
	}
}

// resources are those of the service; each has its name.
func resources(backend string) map[resource.Type][]types.Resource {
	made := map[resource.Type][]types.Resource{
		resource.ListenerType: {apiListener()},
		resource.RouteType:    {routes()},
	}
	if backend != "" {
		made[resource.ClusterType] = []types.Resource{edsCluster()}
		made[resource.EndpointType] = []types.Resource{endpoints(backend)}
	}
	return made
}
