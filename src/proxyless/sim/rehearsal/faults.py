"""Injection of the faults of a script into a world."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxyless.base import OK, Status
from proxyless.sim.rehearsal.script import ControlFault, ControlFaultAction, Fault, FaultAction

if TYPE_CHECKING:
    from proxyless.sim.backends import Backend
    from proxyless.sim.control_plane import SimControlPlane
    from proxyless.sim.hosts import Host
    from proxyless.sim.world import World

# Faults that stop a backend, until START.
_GONE: Final = frozenset({Fault.KILL, Fault.STOP, Fault.LOSE_POWER})


class FaultInjector:
    """Injects faults. It holds which hosts are cut or hang, so one HEAL ends two cuts of a host."""

    def __init__(self, world: World, control: SimControlPlane) -> None:
        self._world = world
        self._control = control
        self._cut: set[str] = set()
        self._hung_hosts: set[str] = set()

    async def inject(self, action: FaultAction, backend: Backend) -> None:  # noqa: C901 - a table
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
                self._set_hung(backend.host, is_hung=True)
            case Fault.CUT:
                self._set_cut(backend.host, is_cut=True)
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
        control = self._control
        match action.fault:
            case ControlFault.STOP:
                await control.stop()
            case ControlFault.START:
                await control.start()
            case ControlFault.BREAK_STREAMS:
                control.break_streams()
            case ControlFault.CUT:
                self._set_cut(control.host, is_cut=True)
            case ControlFault.HANG:
                self._set_hung(control.host, is_hung=True)
            case ControlFault.DELAY:
                control.delay(action.delay_s)
            case ControlFault.WITHHOLD:
                control.withhold(action.type_url, *action.names)
            case ControlFault.HEAL:
                self._heal_control(action.undoes)

    def _heal(self, backend: Backend, fault: Fault | None) -> None:
        """End one fault, or all of them."""
        if fault in {None, Fault.SLOW}:
            backend.delay_s = 0.0
        if fault in {None, Fault.FAIL}:
            backend.status = OK
        if fault in {None, Fault.THROTTLE}:
            backend.host.throttle(None, *self._clients())
        if fault in {None, Fault.CUT}:
            self._set_cut(backend.host, is_cut=False)
        if fault in {None, Fault.HANG}:
            self._set_hung(backend.host, is_hung=False)

    def _heal_control(self, fault: ControlFault | None) -> None:
        if fault not in {ControlFault.CUT, ControlFault.HANG}:
            self._control.release()
        if fault in {None, ControlFault.CUT}:
            self._set_cut(self._control.host, is_cut=False)
        if fault in {None, ControlFault.HANG}:
            self._set_hung(self._control.host, is_hung=False)

    def _clients(self) -> list[Host]:
        return [client.host for client in self._world.clients.values()]

    def _set_cut(self, host: Host, *, is_cut: bool) -> None:
        if is_cut != (host.name in self._cut):
            self._cut ^= {host.name}
            (host.cut if is_cut else host.heal)(*self._clients())

    def _set_hung(self, host: Host, *, is_hung: bool) -> None:
        if is_hung != (host.name in self._hung_hosts):
            self._hung_hosts ^= {host.name}
            (host.hang if is_hung else host.wake)(*self._clients())


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
