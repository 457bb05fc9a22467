"""The asyncio API: grpc.aio's channel and call objects on our channel.

channel          AioChannel: grpc.aio's channel
multi_callables  the callables for one method, which start calls
calls            call objects
outcomes         result of a call: response queue, status, futures that wait for them
interceptors     interceptors of the application
child_streams    streams to a control plane, through interceptors (A110)
session          AioSession: a channel whose RPCs stay on one backend
"""
