"""A mesh on one machine that goes through a bad day, for people to look at: `proxyless demo`.

mesh       what the control plane serves: zones, priorities, an aggregate cluster
backend    one backend: a process with a grpcio server (`python -m proxyless.demo.backend`)
processes  backends started, killed, and started again
traffic    a steady load and a session through the generated stub; a record of every RPC
story      what happens, and what must be seen then, as data
stage      the real thing, on loopback
play       the story played on the stage
verdict    whether everything was as it should be
view       what is shown at one moment
terminal   the view on a terminal, or as a log
web        the view as a page, `page.html`

The greeter is a service like any application's: `greeter.proto`, and what grpcio-tools made of it.
"""
