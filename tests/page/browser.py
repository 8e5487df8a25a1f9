"""A headless Chromium (Debian's package, with its driver) that says what went wrong in a page."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

OWN = ("file:", "data:", "about:", "blob:")
"""Requests that leave no machine."""


class Browser:
    """Opens pages, and collects what they log and ask for."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, path: Path) -> None:
        """Open a page and wait until its script is done."""
        self.complaints()
        self.requests()
        self.driver.get(path.as_uri())

    def complaints(self) -> list[str]:
        """What the console got since it was last asked."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """What was asked for since it was last asked, but for the page itself."""
        found = []
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                found.append(message["params"]["request"]["url"])
        return [url for url in found if not url.startswith(OWN)]

    def run(self, script: str, *arguments: Any) -> Any:
        """What a script in the page returns."""
        return self.driver.execute_script(script, *arguments)

    def click(self, element: WebElement) -> None:
        """Click an element, wherever the page is scrolled to."""
        self.run("arguments[0].click()", element)

    def all(self, selector: str, inside: Any = None) -> list[WebElement]:
        """Elements by CSS selector."""
        found: list[WebElement] = (inside or self.driver).find_elements(By.CSS_SELECTOR, selector)
        return found

    def emulate(self, *, dark: bool = False, media: str = "") -> None:
        """Prefer a colour scheme, or lay out for another medium."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": [scheme]})

    def screenshot(self, path: Path) -> None:
        """The whole page as a picture."""
        height = self.run("return document.documentElement.scrollHeight")
        size = {"width": 1360, "height": min(height, 16_000), "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        shot = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True})
        path.write_bytes(base64.b64decode(shot["data"]))

    def pdf(self, path: Path) -> None:
        """The page as it is printed."""
        made = self.driver.execute_cdp_cmd(
            "Page.printToPDF", {"preferCSSPageSize": True, "printBackground": False}
        )
        path.write_bytes(base64.b64decode(made["data"]))


@contextmanager
def browser(home: Path) -> Iterator[Browser]:
    """A browser of its own, whose files lie in `home`, and which has no way to any network."""
    chromium, chromedriver = shutil.which("chromium"), shutil.which("chromedriver")
    assert chromium, "apt-get install chromium"
    assert chromedriver, "apt-get install chromium-driver"
    options = Options()
    options.binary_location = chromium
    for argument in (
        "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        "--window-size=1360,900",
        "--disable-background-networking", "--disable-component-update", "--no-first-run",
        "--proxy-server=127.0.0.1:9", f"--user-data-dir={home / 'profile'}",
    ):  # fmt: skip
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(chromedriver))
    try:
        yield Browser(driver)
    finally:
        driver.quit()
