-- The time in microseconds since 1970, by the only clock that all callers share. Below 2^53, so exact.
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
