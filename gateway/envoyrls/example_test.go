package envoyrls_test

import (
	"log"
	"net"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/gateway/envoyrls"
	"github.com/spillway-go/spillway/rules"
)

func Example() { //nolint:testableexamples // it serves until the program ends
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379", ContextTimeoutEnabled: true})
	defer client.Close()
	service := spillway.Must(envoyrls.New(&envoyrls.Options{
		Client: client,
		Config: map[string]rules.Source{"shop.yaml": rules.File("/etc/shop/limits.yaml")},
		Nodes:  2,
	}))
	defer service.Close()

	server := grpc.NewServer()
	ratelimitv3.RegisterRateLimitServiceServer(server, service)
	log.Print(server.Serve(spillway.Must(net.Listen("tcp", ":8081"))))
}
