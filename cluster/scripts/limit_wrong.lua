-- wrong returns what to say if somebody else keeps something else at a key.
local function wrong(key)
  return 'WRONGTYPE ' .. key .. ' does not hold what this limit keeps there'
end

-- stored is whether the figures of the rule are kept in Redis.
local stored = false
