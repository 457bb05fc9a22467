"""Programs that make RPCs to the suites' servers, with our channels or with grpcio's."""
