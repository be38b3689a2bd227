-- The second key holds the figures of the rule, if somebody set them. Otherwise they are those of the caller.
local config = redis.call('HMGET', KEYS[2], 'kind', 'first', 'second', 'third', 'keep')
if config[1] then
  if config[1] ~= ARGV[4] then
    return redis.error_reply('WRONGTYPE ' .. KEYS[2] .. ' holds a rule of another kind')
  end
  ARGV[5], ARGV[6], ARGV[7] = config[2], config[3], config[4]
  if ARGV[1] ~= '0' then
    redis.call('PEXPIRE', KEYS[2], config[5])
  end
end
KEYS[2], stored = nil, true
