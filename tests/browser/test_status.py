"""The status page in Chromium, under load: at two widths, light and dark. `make test-browser`."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.async_api import Browser, Page, async_playwright, expect

from proxy.tools.simulate import Options
from tests.clients.npm import CannotInstall, installed
from tests.house import House, open_house
from tests.integration.test_operations import scrape, value
from tests.wire_client import Event, function, tool_output, user

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

ROOT = Path(__file__).parents[2]
SCREENSHOTS = ROOT / "build" / "screenshots"
AXE = "4.14.1"
SIZES = {390: 844, 1280: 900}
SERIOUS = ("moderate", "serious", "critical")
CHROMIUM = os.environ.get("LOOPLINE_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome") or ""
OPTIONS = Options(ttft_s=0.03, tokens_per_s=300)
Scheme = Literal["light", "dark"]
TOOL_S = (0.05, 0.2, 0.1)
OUTCOMES = ("incomplete", "failed", "refused", "cancelled")
COUNTS = ("hits_total", "misses_total", "entries")


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    """Chromium, the system's own."""
    if not CHROMIUM:
        pytest.skip("there is no chromium: install it, or name it in LOOPLINE_CHROMIUM")
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(executable_path=CHROMIUM)
        yield started
        await started.close()


@asynccontextmanager
async def opened(
    browser: Browser, url: str, width: int = 1280, scheme: Scheme = "light", **options: Any
) -> AsyncIterator[tuple[Page, list[str]]]:
    """The page, and everything that the console and the policy complained of."""
    context = await browser.new_context(
        viewport={"width": width, "height": SIZES[width]},
        color_scheme=scheme,
        reduced_motion="reduce",
        **options,
    )
    complaints: list[str] = []
    page = await context.new_page()
    page.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("requestfailed", lambda request: complaints.append(f"failed: {request.url}"))
    page.on("request", lambda asked: None if asked.url.startswith((url, "data:")) else complaints.append(asked.url))
    await page.add_init_script(
        "document.addEventListener('securitypolicyviolation', (e) => console.error('policy', e.violatedDirective))"
    )
    try:
        await page.goto(f"{url}/status")
        yield page, complaints
    finally:
        await context.close()


async def agent(house: House, stop: asyncio.Event, tool_s: float) -> None:
    """An agent whose tool takes up to `tool_s`, until told to stop."""
    async with house.connect() as client:
        asks: list[Event] = [user("[[say 9]] [[call get_weather]]")]
        parent: str | None = None
        for tokens, part in itertools.cycle(itertools.product((30, 12, 45, 6), (1.0, 0.3, 0.6))):
            last = await client.turn(asks, previous_response_id=parent, tools=[function()])
            if stop.is_set():
                break
            await asyncio.sleep(tool_s * part)
            parent = last.id
            asks = [tool_output(call["call_id"], "mild " * 40) for call in last.calls]
            asks.append(user(f"[[say {tokens}]] [[call get_weather]]"))


@asynccontextmanager
async def load(house: House) -> AsyncIterator[None]:
    """Agents at work while open."""
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for tool_s in TOOL_S:
            group.create_task(agent(house, stop, tool_s))
        try:
            yield
        finally:
            stop.set()


@pytest.fixture(scope="session")
def axe_core() -> str:
    """The script of axe-core; the tests that need it are skipped where it cannot be had."""
    try:
        folder = installed(f"axe-core-{AXE}", f"axe-core@{AXE}")
    except CannotInstall as reason:
        pytest.skip(str(reason))
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text()


async def findings(page: Page, axe_core: str) -> list[str]:
    """What axe-core does not let pass, but for what it calls minor."""
    await page.evaluate(axe_core)
    found = await page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{each['id']}: {node['html'][:200]} {node['failureSummary']}"
        for each in found["violations"]
        if each["impact"] in SERIOUS
        for node in each["nodes"]
    ]


async def tile(page: Page, section: str, name: str) -> str:
    """A number of the page."""
    text: str = await page.locator(f"#{section} div[data-key='{name}'] dd").inner_text()
    return text


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", list(SIZES))
async def test_under_load_it_shows_a_loop_without_complaint(
    browser: Browser, width: int, scheme: Scheme, axe_core: str
) -> None:
    async with open_house("chat", options=OPTIONS) as house, load(house):
        await house.watcher.wait_for(lambda: len(house.watcher.turns) > 30, 30)
        async with opened(browser, house.root, width, scheme) as (page, complaints):
            await page.locator("#waterfall li").nth(5).wait_for()
            wide = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, "the page scrolls sideways"
            await page.locator("#numbers summary").click()
            assert await page.locator("#turns tbody tr").count() > 5
            assert await findings(page, axe_core) == []
            SCREENSHOTS.mkdir(parents=True, exist_ok=True)
            await page.locator("#numbers summary").click()
            await page.screenshot(path=SCREENSHOTS / f"status-{width}-{scheme}.png", full_page=True)
            assert complaints == []


async def test_its_numbers_are_those_of_the_metrics(browser: Browser) -> None:
    async with open_house("chat", options=OPTIONS) as house:
        async with load(house):
            await house.watcher.wait_for(lambda: len(house.watcher.turns) > 20, 30)
        await house.empty(5)
        async with house.connect() as client, opened(browser, house.root) as (page, complaints):
            first = await client.says("one")
            await client.says("two", previous_response_id=first.id)
            await client.says("three", previous_response_id=first.id)
            await client.turn([user("[[fail 500]]")])
            await client.turn([user("[[length 3]]")])
            metrics = await scrape(house)
            completed = f"{value(metrics, 'loopline_turn_ended_total', outcome='completed'):,.0f}"
            await expect(page.locator("#ends div[data-key=completed] dd")).to_have_text(completed)
            for section, name, metric, labels in (
                ("now", "sessions", "loopline_session_open", {}),
                ("now", "lanes", "loopline_lane_open", {}),
                ("now", "turns running", "loopline_turn_running", {}),
                *(("ends", outcome, "loopline_turn_ended_total", {"outcome": outcome}) for outcome in OUTCOMES),
                ("ends", "error upstream_failed", "loopline_turn_errors_total", {"kind": "upstream_failed"}),
                ("ends", "forks", "loopline_turn_forks_total", {}),
                ("ends", "steers", "loopline_turn_steers_total", {}),
                ("ends", "tokens in", "loopline_turn_tokens_total", {"direction": "input"}),
                ("ends", "of these cached", "loopline_turn_tokens_total", {"direction": "cached"}),
                ("ends", "tokens out", "loopline_turn_tokens_total", {"direction": "output"}),
            ):
                assert await tile(page, section, name) == f"{value(metrics, metric, **labels):,.0f}", name
            for cache in ("store", "terms", "tools", "catalog"):
                cells = await page.locator(f"#caches tbody tr[data-key={cache}] td").all_inner_texts()
                told = [f"{value(metrics, f'loopline_cache_{name}', cache=cache):,.0f}" for name in COUNTS]
                assert cells[1:4] == told, cache
            found = await page.locator("#endpoints tbody tr").inner_text()
            assert found.split() == ["default", "up", "–", "0"]
            assert complaints == []


async def test_the_bar_of_a_turn_that_runs_grows_until_it_ends(browser: Browser, axe_core: str) -> None:
    async with open_house("chat", options=OPTIONS) as house, house.connect() as client:
        first = await client.turn([user("[[call get_weather]]")], tools=[function()])
        output = tool_output(first.calls[0]["call_id"], "mild")
        await client.create([output, user("[[stall 5]]")], previous_response_id=first.id, tools=[function()])
        await client.until("response.output_text.delta")
        async with opened(browser, house.root) as (page, complaints):
            bar = page.locator("#waterfall li.running")
            await expect(page.locator("#waterfall li").nth(1)).to_be_visible()
            await expect(bar).to_have_count(1)
            assert await page.locator("#waterfall li").first.get_attribute("class") == "running", "the newest is first"
            seen = [await length(page)]
            while len(seen) < 4:
                if (now := await length(page)) != seen[-1]:
                    seen.append(now)
            assert seen == sorted(seen)
            assert re.search("client .* · proxy .* · upstream .*· running, now upstream", await bar.inner_text(), re.S)
            assert "1 running" in await page.locator("#loop-note").inner_text()
            tree = await page.locator("#bars").aria_snapshot()
            assert "running, now upstream" in tree, "a screen reader is told, too"
            await page.locator("#numbers summary").click()
            assert "running, now upstream" in await page.locator("#turns tbody tr").first.inner_text()
            assert await findings(page, axe_core) == []
            await client.send({"type": "response.cancel"})
            await client.until_ended()
            await expect(bar).to_have_count(0)
            await expect(page.locator("#waterfall li").first).to_contain_text("cancelled")
            assert complaints == []


async def length(page: Page) -> float:
    """How many times as long as the oldest bar the newest one is drawn."""
    ends: list[float] = await page.locator("#waterfall li svg").evaluate_all(
        """(bars) => bars.map((bar) => Math.max(...Array.from(bar.children,
            (box) => box.x.baseVal.value + box.width.baseVal.value)))"""
    )
    return round(ends[0] / ends[-1], 2)


async def test_a_session_is_chosen_by_keyboard_and_focus_stays_while_numbers_change(browser: Browser) -> None:
    async with open_house("chat", options=OPTIONS) as house, load(house):
        await house.watcher.wait_for(lambda: len(house.watcher.turns) > 10, 30)
        async with opened(browser, house.root) as (page, complaints):
            await page.wait_for_selector("#sessions tbody tr:nth-child(3) button")
            wanted = await page.locator("#sessions tbody tr:nth-child(3) button").inner_text()
            await page.locator("#pause").focus()
            for _ in range(20):
                await page.keyboard.press("Tab")
                if await page.evaluate("document.activeElement.textContent") == wanted:
                    break
            await page.keyboard.press("Enter")
            await expect(page.locator("#loop-note")).to_contain_text(wanted)
            before = await page.locator("#waterfall li").count()
            await page.locator("#waterfall li").nth(before).wait_for()
            assert await page.evaluate("document.activeElement.textContent") == wanted
            assert page.url.endswith(f"#{wanted}")
            assert complaints == []


async def test_pause_asks_for_nothing_more(browser: Browser) -> None:
    async with open_house("chat", options=OPTIONS) as house:
        async with opened(browser, house.root) as (page, complaints):
            await page.clock.install()
            await page.reload()
            await page.wait_for_selector("#ends dd")
            asked: list[str] = []
            page.on("request", lambda request: asked.append(request.url))
            await page.locator("#pause").click()
            assert await page.locator("#pause").get_attribute("aria-pressed") == "true"
            await page.clock.run_for(60_000)
            assert asked == []
            async with page.expect_request("**/status.json*"):
                await page.locator("#pause").click()
            assert complaints == []


async def test_it_says_that_nobody_answers(browser: Browser) -> None:
    async with open_house("chat", options=OPTIONS) as house:
        async with opened(browser, house.root) as (page, _):
            await page.wait_for_selector("#ends dd")
            await page.route("**/status.json*", lambda route: route.abort())
            await expect(page.locator("#notice")).to_contain_text("No answer")
            await page.unroute("**/status.json*")
            await expect(page.locator("#notice")).to_be_empty()


async def test_a_browser_gives_the_key_as_a_password(browser: Browser, tmp_path: Path) -> None:
    key = "a-key-for-the-page"
    (tmp_path / "key").write_text(key)
    settings = {"server.status": "key", "server.status_key_file": str(tmp_path / "key")}
    credentials = {"username": "anybody", "password": key}
    async with open_house("chat", settings, OPTIONS) as house:
        async with opened(browser, house.root, http_credentials=credentials) as (page, complaints):
            await page.wait_for_selector("#ends dd")
            assert "version" in await page.locator("#process").inner_text()
            assert complaints == []
