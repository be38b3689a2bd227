package overload_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/spillway-go/spillway/lab/overload"
)

func ExampleFixed() {
	var guarded http.Handler
	guarded, view, err := overload.Fixed(1).Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/outer" { // one more arrives while this one is at work
			second := httptest.NewRecorder()
			guarded.ServeHTTP(second, httptest.NewRequest(http.MethodGet, "/inner", nil))
			fmt.Println("inner:", second.Code)
		}
		w.WriteHeader(http.StatusOK)
	}))
	if err != nil {
		panic(err)
	}
	first := httptest.NewRecorder()
	guarded.ServeHTTP(first, httptest.NewRequest(http.MethodGet, "/outer", nil))
	fmt.Println("outer:", first.Code)
	fmt.Println("refused:", *view().Refused)
	// Output:
	// inner: 503
	// outer: 200
	// refused: 1
}
