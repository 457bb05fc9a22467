"""Injection of the faults of a script into a world."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxyless.base import OK, Status
from proxyless.sim.rehearsal.script import ControlFault, ControlFaultAction, Fault, FaultAction

if TYPE_CHECKING:
    from proxyless.sim.backends import Backend
    from proxyless.sim.control import SimControlPlane
    from proxyless.sim.hosts import Host
    from proxyless.sim.world import World

# All of these end a backend, and any START begins it again.
_GONE: Final = frozenset({Fault.KILL, Fault.STOP, Fault.LOSE_POWER})


class FaultInjector:
    """Injects faults, and holds which hosts are cut or hung: one `heal` ends two cuts of a host."""

    def __init__(self, world: World, control: SimControlPlane) -> None:
        # Fixed at construction.
        self._world = world
        self._control = control
        # Names of the hosts with a lasting fault.
        self._cut: set[str] = set()
        self._hung: set[str] = set()

    async def inject(self, action: FaultAction, backend: Backend) -> None:  # noqa: C901 - a table
        """Inject a fault into one endpoint."""
        match action.fault:
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
                backend.host.throttle(action.bytes_per_s, *self._clients())
            case Fault.SLOW:
                backend.delay_s = action.delay_s
            case Fault.FAIL:
                backend.status = Status(action.code, "failed on purpose")
            case Fault.HEAL:
                self._heal(backend, action.undoes)
            case Fault.GOAWAY:
                backend.say_goaway()
            case Fault.RESET:
                backend.host.reset_connections()

    async def inject_control(self, action: ControlFaultAction) -> None:
        """Inject a fault into the control plane."""
        control = self._control
        match action.fault:
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
                control.delay(action.delay_s)
            case ControlFault.WITHHOLD:
                control.withhold(action.type_url, *action.names)
            case ControlFault.HEAL:
                self._heal_control(action.undoes)

    def _heal(self, backend: Backend, fault: Fault | None) -> None:
        """Undo one fault, or all of them."""
        if fault in {None, Fault.SLOW}:
            backend.delay_s = 0.0
        if fault in {None, Fault.FAIL}:
            backend.status = OK
        if fault in {None, Fault.THROTTLE}:
            backend.host.throttle(None, *self._clients())
        if fault in {None, Fault.CUT}:
            self._join(backend.host)
        if fault in {None, Fault.HANG}:
            self._wake(backend.host)

    def _heal_control(self, fault: ControlFault | None) -> None:
        if fault not in {ControlFault.CUT, ControlFault.HANG}:
            self._control.release()
        if fault in {None, ControlFault.CUT}:
            self._join(self._control.host)
        if fault in {None, ControlFault.HANG}:
            self._wake(self._control.host)

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

    def _join(self, host: Host) -> None:
        if host.name in self._cut:
            self._cut.remove(host.name)
            host.heal(*self._clients())

    def _wake(self, host: Host) -> None:
        if host.name in self._hung:
            self._hung.remove(host.name)
            host.wake(*self._clients())


class ActiveFaults:
    """Backends that each fault affects until its end."""

    def __init__(self) -> None:
        # By the path of the event.
        self._affected: dict[str, tuple[Fault, list[Backend]]] = {}

    def begin(self, path: str, fault: Fault, backends: list[Backend]) -> None:
        """Record the affected backends. START and HEAL end what affected theirs before."""
        if fault in {Fault.START, Fault.HEAL}:
            over = {backend.name for backend in backends}
            for kind, affected in self._affected.values():
                if (kind in _GONE) == (fault is Fault.START):
                    affected[:] = [each for each in affected if each.name not in over]
        self._affected[path] = (fault, list(backends))

    def end(self, path: str) -> list[Backend]:
        """The backends that recover now: no other active fault of the same kind affects them."""
        fault, backends = self._affected.pop(path)
        same = _GONE if fault in _GONE else {fault}
        kept = {
            each.name
            for kind, affected in self._affected.values()
            if kind in same
            for each in affected
        }
        return [backend for backend in backends if backend.name not in kept]
