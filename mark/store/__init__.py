"""The store that the processes of a service share: one Redis, embedded or by URL. The only room with redis.

`connect` opens it, `EmbeddedRedis` starts one. `ServiceStore` is the controller's and the command line's side,
`GatewayStore` and `AgentStore` are the data plane's. Whatever Redis does wrong is RetryLater.
"""
