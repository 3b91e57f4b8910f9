"""The picture of the waterfall in README.md: a screenshot of an agent loop that runs, light and dark.

`make picture` writes it. The upstream is simulated, what its answers and the client's tools take is not: it is waited.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from io import BytesIO
from pathlib import Path
from typing import Literal

from PIL import Image
from playwright.async_api import FloatRect, Page, async_playwright

from proxy.tools.simulate import Options
from tests.house import House, open_house
from tests.wire_client import Recorded, WireClient, function, tool_output, user

WIDTH, MARGIN = 880, 14  # pixels of CSS: about what code hosts give a README
UPSTREAM = Options(ttft_s=0.18, tokens_per_s=90)
# Of each turn: seconds of the tool that it answers, and the tokens that the model then takes.
LOOP = ((0.35, 40), (0.08, 18), (0.9, 55), (0.22, 25), (0.5, 80), (0.12, 30), (0.3, 22))
TOOL_S, RUNNING_S = 0.4, 0.8  # of the turn that goes on: its tool, and how long it runs in the picture
COLOURS = 96  # more than these the page has only at the edges of letters
Scheme = Literal["light", "dark"]
SCHEMES: tuple[Scheme, ...] = ("light", "dark")


async def loop(client: WireClient) -> None:
    """An agent's loop, and a turn of it that goes on."""
    last = await client.turn([user("[[say 30]] [[call get_weather]]")], tools=[function()])
    for tool_s, tokens in LOOP:
        await asyncio.sleep(tool_s)
        await client.create(answers(last, f"[[say {tokens}]] [[call get_weather]]"), **after(last))
        last = await client.collect()
    await asyncio.sleep(TOOL_S)
    await client.create(answers(last, "[[stall 30]]"), **after(last))
    await client.until("response.output_text.delta")


def answers(last: Recorded, script: str) -> list[dict[str, object]]:
    """What the client's tools returned, and what the model shall do next."""
    return [*(tool_output(call["call_id"], "mild") for call in last.calls), user(script)]


def after(last: Recorded) -> dict[str, object]:
    """How a create goes on."""
    return {"previous_response_id": last.id, "tools": [function()]}


async def clip(page: Page) -> FloatRect:
    """From the heading to the last bar."""
    top = await page.locator("#loop-title").bounding_box()
    bars = await page.locator("#bars").bounding_box()
    assert top is not None
    assert bars is not None
    x, y = top["x"] - MARGIN, top["y"] - MARGIN
    return {
        "x": x,
        "y": y,
        "width": bars["width"] + 2 * MARGIN,
        "height": bars["y"] + bars["height"] + MARGIN - y,
    }


async def take(house: House, page: Page, folder: Path) -> None:
    """The pictures, all of one moment."""
    async with house.connect() as client:
        await loop(client)
        await asyncio.sleep(RUNNING_S)
        await page.goto(f"{house.root}/status")
        await page.locator("#waterfall li").nth(len(LOOP) + 1).wait_for()
        await page.locator("#pause").click()
        for scheme in SCHEMES:
            await page.emulate_media(color_scheme=scheme)
            taken = Image.open(BytesIO(await page.screenshot(clip=await clip(page))))
            few = taken.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
            few.save(folder / f"waterfall-{scheme}.png", optimize=True)


async def main(folder: Path) -> None:
    """Write `waterfall-light.png` and `waterfall-dark.png`."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        sys.exit("there is no chromium: install it")
    async with open_house("chat", options=UPSTREAM) as house, async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program)
        page = await browser.new_page(viewport={"width": WIDTH, "height": 1600}, device_scale_factor=2)
        await page.goto(f"{house.root}/status")
        async with house.connect() as client:
            await client.turn([user("[[call get_weather]]")], tools=[function()])  # what is done once is done
        await take(house, page, folder)
        await browser.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
