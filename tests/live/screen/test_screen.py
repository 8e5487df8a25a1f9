"""Keys and threads, on textual's own terminal; and that a real one is as before afterwards."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from textual.pilot import Pilot

from kwsniff.live.screen import Screen, possible
from kwsniff.live.screen.app import Face, LiveApp
from kwsniff.live.screen.lastminute import ScreenStatistics, Snapshot
from kwsniff.live.screen.state import KEYS
from tests.cli.conftest import ROOT
from tests.live.screen.events import batch, call, health

Steps = Callable[[Pilot[None], LiveApp], Coroutine[Any, Any, None]]


def usual(fetches: int = 30) -> Snapshot:
    statistics = ScreenStatistics()
    rows = [call(at / 10, 3, api="Fetch", client_id="reader", topics=["orders"]) for at in range(fetches)]
    rows += [call(2, 900, api="Produce", api_key=0, client_id="writer", error_code=6, error="NOT_LEADER")]
    rows += [call(2, 9, api="Metadata", api_key=5, client_id="admin")] * 3
    statistics.add(batch(rows))
    statistics.tick(health(10.0, packets=100))
    return statistics.snapshot()


def driven(
    steps: Steps, shown: Callable[[], Snapshot | None] = usual, size: tuple[int, int] = (80, 24)
) -> bool:
    """Run the app through `steps`. Returns whether the user left."""
    left: list[bool] = []
    app = LiveApp("eth0", shown, lambda: left.append(True))

    async def run() -> None:
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            await steps(pilot, app)

    asyncio.run(run())
    if app.failure:
        raise app.failure
    return bool(left)


def screen(app: LiveApp) -> list[str]:
    """What stands on the screen."""
    return [strip.text for name in ("face", "keys") for strip in app.query_one(f"#{name}", Face).strips]


def rows(app: LiveApp) -> list[str]:
    """First words of the rows."""
    lines = screen(app)
    heading = next(place for place, line in enumerate(lines) if "p99 ms" in line)
    names = [line.split(" ")[0] for line in lines[heading + 1 :]]
    return names[: names.index("")]


async def press(pilot: Pilot[None], *keys: str) -> None:
    await pilot.press(*keys)
    await pilot.pause()


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("a", ["Fetch", "Metadata", "Produce"]),
        ("c", ["reader", "admin", "writer"]),
        ("t", ["orders"]),
        ("b", ["10.0.0.9:9092"]),
        ("tab", ["reader", "admin", "writer"]),
    ],
)
def test_keys_change_the_grouping(key: str, expected: list[str]) -> None:
    async def steps(pilot: Pilot[None], app: LiveApp) -> None:
        await press(pilot, key)
        assert rows(app) == expected

    driven(steps)


def test_shift_tab_goes_back_to_the_last_grouping() -> None:
    async def steps(pilot: Pilot[None], app: LiveApp) -> None:
        await press(pilot, "shift+tab")
        assert "No group yet" in screen(app)

    driven(steps)


@pytest.mark.parametrize(
    ("keys", "first"), [(["2"], "Produce"), (["3"], "Produce"), (["2", "1"], "Fetch"), (["s"], "Produce"),
                        (["5"], "Fetch"), (["s"] * 5, "Fetch")]
)  # fmt: skip
def test_keys_change_the_order(keys: list[str], first: str) -> None:
    async def steps(pilot: Pilot[None], app: LiveApp) -> None:
        await press(pilot, *keys)
        assert rows(app)[0] == first

    driven(steps)


def test_enter_shows_the_last_calls_of_the_selected_row_and_escape_the_rows() -> None:
    async def steps(pilot: Pilot[None], app: LiveApp) -> None:
        await press(pilot, "down", "down", "enter")
        assert any("Last calls of API Produce" in line for line in screen(app))
        assert any("NOT_LEADER" in line for line in screen(app))
        await press(pilot, "escape")
        assert rows(app) == ["Fetch", "Metadata", "Produce"]

    driven(steps)


def test_the_selection_stays_with_its_row_when_the_order_changes() -> None:
    shown = [usual()]

    async def steps(pilot: Pilot[None], app: LiveApp) -> None:
        await press(pilot, "end")
        assert app.state.selected == ("Produce", "")
        shown[0] = usual(fetches=1)
        app.draw()
        await press(pilot, "enter")
        assert any("Last calls of API Produce" in line for line in screen(app))

    driven(steps, lambda: shown[0])


def test_a_filter_is_typed_kept_and_dropped() -> None:
    async def steps(pilot: Pilot[None], app: LiveApp) -> None:
        await press(pilot, "slash", "m", "e", "t")
        assert rows(app) == ["Metadata"]
        await press(pilot, "enter")
        assert rows(app) == ["Metadata"]
        await press(pilot, "c", "a")  # keys again, no text
        assert rows(app) == ["Metadata"]
        await press(pilot, "escape")
        assert rows(app) == ["Fetch", "Metadata", "Produce"]
        await press(pilot, "slash", "q", "escape")
        assert rows(app) == ["Fetch", "Metadata", "Produce"]

    assert not driven(steps)


def test_pause_holds_the_rows_but_not_the_capture_s_health() -> None:
    shown = [usual()]

    async def steps(pilot: Pilot[None], app: LiveApp) -> None:
        await press(pilot, "p")
        statistics = ScreenStatistics()
        statistics.tick(health(20.0, kernel_dropped=77))
        shown[0] = statistics.snapshot()
        app.draw()
        await pilot.pause()
        assert rows(app) == ["Fetch", "Metadata", "Produce"]
        assert any("DROPPED 77" in line for line in screen(app))
        await press(pilot, "c")
        assert rows(app) == ["reader", "admin", "writer"]
        await press(pilot, "space")
        assert "No client yet" in screen(app)

    driven(steps, lambda: shown[0])


def test_help_names_every_key_that_is_said_to_do_something() -> None:
    async def steps(pilot: Pilot[None], app: LiveApp) -> None:
        await press(pilot, "question_mark")
        for key in KEYS:
            if key.shown:
                assert any(key.shown in line and key.meaning in line for line in screen(app))
        await press(pilot, "question_mark")
        assert rows(app)

    driven(steps, size=(100, 40))


def test_the_documentation_has_the_same_keys() -> None:
    pages = "".join(page.read_text() for page in Path(ROOT, "docs").glob("live*.md"))
    for key in KEYS:
        assert not key.shown or f"| {key.shown} | {key.meaning} |" in pages


def test_every_key_has_something_to_do() -> None:
    for key in KEYS:
        assert hasattr(LiveApp, "action_" + key.action.split("(")[0])


@pytest.mark.parametrize("keys", [["q"], ["ctrl+c"], ["ctrl+q"], ["slash", "a", "ctrl+c"]])
def test_quitting_stops_the_session_even_while_a_filter_is_typed(keys: list[str]) -> None:
    async def steps(pilot: Pilot[None], app: LiveApp) -> None:
        await pilot.press(*keys)

    assert driven(steps)


@pytest.mark.parametrize("size", [(80, 24), (30, 5), (160, 50), (50, 15)])
def test_a_resized_terminal_is_filled_again(size: tuple[int, int]) -> None:
    async def steps(pilot: Pilot[None], app: LiveApp) -> None:
        await pilot.resize_terminal(*size)
        await pilot.pause()
        if size[0] < 50:
            assert screen(app)[0].startswith("Needs 50x14")
        else:
            assert len(screen(app)) == size[1]
            assert rows(app)[0] == "Fetch"

    driven(steps, size=(100, 30))


def test_a_screen_closed_before_it_runs_returns_at_once() -> None:
    async def steps(pilot: Pilot[None], app: LiveApp) -> None:
        await pilot.pause()

    assert not driven(steps, lambda: None)


def test_a_failure_while_drawing_ends_the_app_and_is_told() -> None:
    def broken() -> Snapshot:
        raise ZeroDivisionError("of the test")

    async def steps(pilot: Pilot[None], app: LiveApp) -> None:
        await pilot.pause()

    with pytest.raises(ZeroDivisionError, match="of the test"):
        driven(steps, broken)


def test_ticks_without_a_running_app_do_no_harm_and_load_no_textual() -> None:
    code = (
        "import sys\n"
        "from kwsniff.live.screen import Screen\n"
        "from tests.live.screen.events import batch, call, health\n"
        "screen = Screen('title', lambda: None)\n"
        "screen.add(batch([call(1)])); screen.tick(health(1)); screen.close(); screen.tick(health(2))\n"
        "assert not any(name.split('.')[0] == 'textual' for name in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)


# On a terminal

PROGRAM = """
import os, sys, threading, time, signal
from kwsniff.live.screen import Screen, view
from tests.live.screen.events import batch, call, health
over = threading.Event()
screen = Screen("eth0", over.set)
def session():
    for second in range(1, 300):
        screen.add(batch([call(second, client_id="reader"), *{more}]))
        screen.tick(health(second))
        {each}
        if over.wait({pause}):
            break
    screen.close()
thread = threading.Thread(target=session)
thread.start()
try:
    screen.run()
    print("returned", os.environ.get("NO_COLOR"))
except ZeroDivisionError:
    print("failed")
finally:
    over.set()
    thread.join()
"""


@pytest.fixture(autouse=True)
def _no_program_is_left() -> Iterator[None]:
    """A program would go on after a test that failed."""
    yield
    while Terminal.started:
        process = Terminal.started.pop()
        if process.poll() is None:
            process.kill()
            process.wait()


class Terminal:
    """A pseudo-terminal with a program in it."""

    started: ClassVar[list[subprocess.Popen[bytes]]] = []

    def __init__(self, each: str = "", more: str = "[]", pause: float = 0.1, **environment: str) -> None:
        """`each` is done in every second of the session, with `more` calls; it takes `pause`."""
        self.master, self.slave = pty.openpty()
        termios.tcsetwinsize(self.slave, (24, 80))
        self.before = termios.tcgetattr(self.slave)
        self.output = b""
        inherited = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
        environment = {**inherited, "TERM": "xterm-256color", **environment}
        code = PROGRAM.format(each=each, more=more, pause=pause)
        self.process = subprocess.Popen(
            [sys.executable, "-c", code], cwd=ROOT, stdin=self.slave, stdout=self.slave,
            stderr=self.slave, env=environment, start_new_session=True,
        )  # fmt: skip
        Terminal.started.append(self.process)

    def wait_for(self, text: bytes, seconds: float = 20) -> None:
        end = time.monotonic() + seconds
        while text not in self.output:
            assert time.monotonic() < end, self.output[-2000:]
            if select.select([self.master], [], [], 0.1)[0]:
                self.output += os.read(self.master, 65536)

    def end(self) -> None:
        """The program has ended by itself, and the terminal is as it was."""
        end = time.monotonic() + 20
        while self.process.poll() is None and time.monotonic() < end:
            if select.select([self.master], [], [], 0.1)[0]:
                self.output += os.read(self.master, 65536)
        while select.select([self.master], [], [], 0)[0]:
            self.output += os.read(self.master, 65536)
        code = self.process.poll()
        if code is None:
            self.process.kill()
        after = termios.tcgetattr(self.slave)
        os.close(self.master)
        os.close(self.slave)
        assert code == 0, self.output[-2000:]
        assert after == self.before
        # Alternate screen left, cursor shown again (xterm control sequences).
        assert self.output.rindex(b"\x1b[?1049l") > self.output.rindex(b"\x1b[?1049h")
        assert self.output.rindex(b"\x1b[?25h") > self.output.rindex(b"\x1b[?25l")
        assert b"\x1b[?1000h" not in self.output, "the mouse is the terminal's"


@pytest.mark.parametrize(
    ("keys", "each", "said"),
    [
        (b"\x03", "", b"returned"),
        (b"", "over.set() if second == 20 else None", b"returned"),
        (b"", "if second == 20: view.screen = lambda *_: 1 / 0", b"failed"),
    ],
    ids=["ctrl-c", "session ends", "drawing fails"],
)
def test_the_terminal_is_as_before_however_it_ends(keys: bytes, each: str, said: bytes) -> None:
    """After `q`, too: see the test of colours."""
    terminal = Terminal(each)
    if keys:
        terminal.wait_for(b"Metadata")
        os.write(terminal.master, keys)
    terminal.wait_for(said)
    terminal.end()


def test_no_color_is_honoured_and_stays_set() -> None:
    error = "[call(second, error_code=3, error='UNKNOWN')]"
    for environment, coloured in (({}, True), ({"NO_COLOR": "1"}, False)):
        terminal = Terminal(more=error, **environment)
        terminal.wait_for(b"Metadata")
        os.write(terminal.master, b"q")
        # To its end: what the program prints last may come in two reads.
        terminal.end()
        # SGR 30 to 37 are colours, 31 is red (ECMA-48).
        assert bool(re.search(rb"\x1b\[[0-9;]*3[0-8][;m]", terminal.output)) is coloured
        assert (b"returned 1" in terminal.output) is not coloured


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_terminal_is_as_before_after_a_signal(number: signal.Signals) -> None:
    ignored = signal.getsignal(number) is signal.SIG_IGN  # as under nohup, which a child would inherit
    if ignored:
        signal.signal(number, signal.SIG_DFL)
    try:
        terminal = Terminal()
    finally:
        if ignored:
            signal.signal(number, signal.SIG_IGN)
    terminal.wait_for(b"Metadata")
    terminal.process.send_signal(number)
    terminal.wait_for(b"returned")
    terminal.end()


def test_a_terminal_that_goes_away_without_a_signal_ends_the_session() -> None:
    terminal = Terminal()
    terminal.wait_for(b"Metadata")
    os.close(terminal.slave)
    os.close(terminal.master)
    try:
        terminal.process.wait(20)
    finally:
        terminal.process.kill()


def test_a_screen_needs_a_terminal_at_all_three_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    master, slave = pty.openpty()
    pipe = os.pipe()
    for chosen, expected in ((slave, True), (pipe[1], False)):
        for name in ("__stdin__", "__stdout__", "__stderr__"):
            stream = open(chosen if name == "__stderr__" else slave, closefd=False, mode="r+b", buffering=0)  # noqa: SIM115
            monkeypatch.setattr(sys, name, stream)
        assert possible() is expected
    monkeypatch.setenv("TERM", "dumb")
    assert possible() is False
    for number in (master, slave, *pipe):
        os.close(number)


def test_a_stalled_terminal_does_not_hold_up_the_session(tmp_path: Path) -> None:
    gone_on = tmp_path / "gone-on"
    terminal = Terminal(
        f"if second == 100: open({str(gone_on)!r}, 'w').close()",
        "[call(second, api=f'{second}-{n}', api_key=second * 100 + n) for n in range(30)]",
        pause=0.05,
    )
    terminal.wait_for(b"Metadata")
    # Nobody reads what is drawn any more. Each second changes more than a kilobyte, and Linux holds 64 KB.
    end = time.monotonic() + 60
    while not gone_on.exists():
        assert time.monotonic() < end
        time.sleep(0.1)
    assert not select.select([], [terminal.slave], [], 0)[1], "not stalled"
    os.write(terminal.master, b"q")
    terminal.wait_for(b"returned")
    terminal.end()


def test_a_thousand_ticks_leave_one_note() -> None:
    sent: list[object] = []

    class App:
        is_running = True

        def post_message(self, message: object) -> bool:
            sent.append(message)
            return True

    held = Screen("title", lambda: None)
    held._app = App()  # type: ignore[assignment]
    worker = threading.Thread(target=lambda: [held.tick(health(at / 10)) for at in range(1000)])
    worker.start()
    worker.join()
    assert len(sent) == 1
