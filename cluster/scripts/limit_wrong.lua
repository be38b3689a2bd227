-- wrong returns what to say if somebody else keeps something else at a key.
local function wrong(key)
  return 'WRONGTYPE ' .. key .. ' does not hold what this limit keeps there'
end
