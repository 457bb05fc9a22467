"""How are the faults of a script done to a world?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxyless.base import OK, Status
from proxyless.sim.rehearsal.script import ControlFault, ControlStrike, Fault, Strike

if TYPE_CHECKING:
    from proxyless.sim.backends import Backend
    from proxyless.sim.control import SimControlPlane
    from proxyless.sim.hosts import Host
    from proxyless.sim.world import World


class Striker:
    """Does them, and knows what lasts: a host that is cut twice is healed by one `heal`."""

    def __init__(self, world: World, control: SimControlPlane) -> None:
        # Fixed at construction.
        self._world = world
        self._control = control
        # What lasts, by the names of hosts.
        self._cut: set[str] = set()
        self._hung: set[str] = set()

    async def strike(self, strike: Strike, backend: Backend) -> None:  # noqa: C901 - a table
        """One endpoint."""
        match strike.fault:
            case Fault.KILL:
                await backend.kill()
            case Fault.STOP:
                await backend.stop()
            case Fault.LOSE_POWER:
                await backend.lose_power()
            case Fault.START:
                await backend.start()
            case Fault.HANG:
                self._hang(backend.host)
            case Fault.CUT:
                self._sever(backend.host)
            case Fault.THROTTLE:
                backend.host.throttle(strike.bytes_per_s, *self._clients())
            case Fault.SLOW:
                backend.delay_s = strike.delay_s
            case Fault.FAIL:
                backend.status = Status(strike.code, "failed on purpose")
            case Fault.HEAL:
                backend.delay_s, backend.status = 0.0, OK
                backend.host.throttle(None, *self._clients())
                self._mend(backend.host)
            case Fault.GOAWAY:
                backend.say_goaway()
            case Fault.RESET:
                backend.host.reset_connections()

    async def strike_control(self, strike: ControlStrike) -> None:
        """The control plane."""
        control = self._control
        match strike.fault:
            case ControlFault.STOP:
                await control.stop()
            case ControlFault.START:
                await control.start()
            case ControlFault.BREAK_STREAMS:
                control.break_streams()
            case ControlFault.CUT:
                self._sever(control.host)
            case ControlFault.HANG:
                self._hang(control.host)
            case ControlFault.DELAY:
                control.delay(strike.delay_s)
            case ControlFault.WITHHOLD:
                control.withhold(strike.type_url, *strike.names)
            case ControlFault.HEAL:
                control.release()
                self._mend(control.host)

    def _clients(self) -> list[Host]:
        return [client.host for client in self._world.clients.values()]

    def _sever(self, host: Host) -> None:
        if host.name not in self._cut:
            self._cut.add(host.name)
            host.cut(*self._clients())

    def _hang(self, host: Host) -> None:
        if host.name not in self._hung:
            self._hung.add(host.name)
            host.hang(*self._clients())

    def _mend(self, host: Host) -> None:
        if host.name in self._cut:
            self._cut.remove(host.name)
            host.heal(*self._clients())
        if host.name in self._hung:
            self._hung.remove(host.name)
            host.wake(*self._clients())
