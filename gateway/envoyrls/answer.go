package envoyrls

import (
	"math"
	"net/http"
	"strconv"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware/httpgate"
)

const (
	statusOK   = ratelimitv3.RateLimitResponse_OK
	statusOver = ratelimitv3.RateLimitResponse_OVER_LIMIT
)

// answer writes the response, and counts.
func (s *Service) answer(q *query) *ratelimitv3.RateLimitResponse {
	out := &ratelimitv3.RateLimitResponse{
		OverallCode: statusOK,
		Statuses:    make([]*ratelimitv3.RateLimitResponse_DescriptorStatus, len(q.of)),
	}
	room := make([]ratelimitv3.RateLimitResponse_DescriptorStatus, len(q.of))
	for i, j := range q.of {
		st := &room[i]
		out.Statuses[i], st.Code = st, statusOK
		switch j {
		case noRule:
		case unlimitedRule:
			st.LimitRemaining = math.MaxUint32
		default:
			s.tell(st, &q.claims[j])
		}
		if st.GetCode() == statusOver {
			out.OverallCode = statusOver
		}
	}
	if !s.o.NoHeaders {
		out.ResponseHeadersToAdd = headers(q.claims)
	}
	return out
}

// tell writes the status of a descriptor.
func (s *Service) tell(st *ratelimitv3.RateLimitResponse_DescriptorStatus, c *claim) {
	st.CurrentLimit = c.rule.current
	st.LimitRemaining = uint32(min(max(c.state.Remaining, 0), math.MaxUint32))
	st.DurationUntilReset = durationpb.New(c.state.FullIn)
	switch {
	case !c.over:
		c.counts.ok.Add(1)
	case c.rule.shadow:
		c.counts.shadowed.Add(1)
	default:
		c.counts.over.Add(1)
		st.Code = statusOver
	}
}

// maxReported is the greatest number of limits in the header of an answer.
const maxReported = 8

// headers returns the fields of the answer to the client: the limits, and when to come back.
func headers(claims []claim) []*corev3.HeaderValue {
	var reported [maxReported]httpgate.QuotaFunc
	limits := reported[:0]
	refused, wait := false, time.Duration(0)
	for i := range claims {
		c := &claims[i]
		if c.rule.shadow {
			continue
		}
		if c.over {
			refused, wait = true, max(wait, c.wait)
		}
		if len(limits) < maxReported && c.state.Limit > 0 {
			quota := quotaOf(c.rule, &c.state, claims[:i])
			limits = append(limits, func(time.Time, spillway.Request) spillway.Quota { return quota })
		}
	}
	h := http.Header{}
	if len(limits) > 0 {
		_ = (&httpgate.RateLimit{Limits: limits, Draft: true}).Set(h, time.Time{}, spillway.Request{}, nil)
	}
	if refused && wait > 0 {
		h.Set("Retry-After", strconv.FormatInt(int64((wait+time.Second-1)/time.Second), 10))
	}
	if len(h) == 0 {
		return nil
	}
	fields := make([]*corev3.HeaderValue, 0, len(h))
	for _, name := range [...][2]string{{"Ratelimit", "ratelimit"}, {"Ratelimit-Policy", "ratelimit-policy"}, {"Retry-After", "retry-after"}} {
		if v := h[name[0]]; len(v) > 0 {
			fields = append(fields, &corev3.HeaderValue{Key: name[1], Value: v[0]})
		}
	}
	return fields
}

// quotaOf returns a limit as a header reports it. Its name is different from those of the claims before it.
func quotaOf(r *rule, st *limiter.State, before []claim) spillway.Quota {
	name := r.title
	same := 1
	for i := range before {
		if before[i].rule.title == r.title && !before[i].rule.shadow {
			same++
		}
	}
	if same > 1 {
		name += " " + strconv.Itoa(same)
	}
	return spillway.Quota{Name: name, Limit: st.Limit, Remaining: st.Remaining, Window: lengthOf(r.unit), Reset: st.NextIn}
}
