-- Returns how many permits are held and how many wait.
return {held(), redis.call('ZCARD', queue)}
