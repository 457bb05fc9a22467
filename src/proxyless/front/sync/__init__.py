"""The blocking API: grpcio's channel and call objects on our channel.

background  the thread with the event loop that blocking channels share
channel     SyncChannel: grpcio's blocking channel
calls       call objects
outcomes    result of a call under way, shared by the application's threads and the loop
requests    the application's request iterators
states      subscriptions to the connectivity state
session     SyncSession: a channel whose RPCs stay on one backend
"""
