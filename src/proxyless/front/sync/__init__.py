"""The blocking API: grpcio's channel and call objects on our channel.

background       the thread with the event loop that blocking channels share
wakeups          wake-up of that loop by other threads
channel          SyncChannel: grpcio's blocking channel
multi_callables  the callables for one method, which start calls
calls            call objects
outcomes         result of a call, shared by the application's threads and the loop
requests         request iterators of the application
subscriptions    subscriptions to the connectivity state
session          SyncSession: a channel whose RPCs stay on one backend
"""
