-- wrong returns what to say if somebody else keeps something else at a key.
local function wrong(key)
  return 'WRONGTYPE ' .. key .. ' does not hold what this limit keeps there'
end

-- put keeps what a limit knows of a key for some ms. A Redis that is full takes nothing new, but lets a script go on that has begun
-- to write: so it goes on counting the keys that it knows, which take no more room than before.
local function put(key, value, ms)
  local done = redis.pcall('SET', key, value, 'PX', ms)
  if type(done) == 'table' and done.err then
    if redis.call('EXISTS', key) == 1 then
      redis.call('PEXPIRE', key, ms)
    end
    redis.call('SET', key, value, 'PX', ms)
  end
end

-- stored is whether the figures of the rule are kept in Redis.
local stored = false
