-- KEYS: the state and the rule of a key. ARGV: 'absent', 'reset' or 'keep', how many ms the rule outlives its last use, and names
-- and values of the fields. Returns whether the rule was set.
if ARGV[1] == 'absent' and redis.call('EXISTS', KEYS[2]) == 1 then
  return {0}
end
redis.call('DEL', KEYS[2])
redis.call('HSET', KEYS[2], 'keep', ARGV[2], unpack(ARGV, 3))
redis.call('PEXPIRE', KEYS[2], ARGV[2])
if ARGV[1] == 'reset' then
  redis.call('UNLINK', KEYS[1])
end
return {1}
