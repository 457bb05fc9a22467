"""Stage of the demo that records its actions."""


class RecordingStage:
    """A stage that only records its actions."""

    def __init__(self) -> None:
        self.done: list[str] = []

    async def kill(self, zone: str) -> None:
        self.done.append(f"kill {zone}")

    async def revive(self, zone: str) -> None:
        self.done.append(f"revive {zone}")

    def move_session_endpoint(self) -> str:
        self.done.append("move")
        return "a1"

    def route_to(self, cluster: str, *, is_late: bool = False) -> None:
        self.done.append(f"route to {cluster}{', late' if is_late else ''}")

    def release(self) -> None:
        self.done.append("release")

    async def stop_control_plane(self) -> None:
        self.done.append("stop")

    async def start_control_plane(self) -> None:
        self.done.append("start")
