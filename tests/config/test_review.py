"""What can be told from the file alone is told before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters.web.cookies import Cookies
from adapters.web.pages import Pages
from channels.adapter import Context
from channels.server import AdminGuard, build_app
from config.loading import ConfigError, parse_settings, review_settings
from config.web import OWN_ADDRESSES, PAGE_ADDRESSES, WebChannel

TELEGRAM = "platform: telegram, bot_token: '1:x'"
SLACK = "platform: slack, bot_token: xoxb-1"
FEISHU = "platform: feishu, app_id: cli_1, app_secret: secret"
WEBHOOK = "mode: webhook, encrypt_key: k, verification_token: v"


def doubts(text: str, folder: Path) -> list[str]:
    file = folder / "bridge.yaml"
    file.write_text(text)
    return [str(problem).removeprefix(f"{folder}/") for problem in review_settings(file, {})[1]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            f"channels:\n  a: {{{TELEGRAM},\n    mode: webhook}}",
            "bridge.yaml:3: channels.a.mode: webhook needs server.public_url",
        ),
        (
            f"server: {{public_url: 'http://x.example'}}\nchannels: {{a: {{{TELEGRAM}, mode: webhook}}}}",
            "bridge.yaml:2: channels.a.mode: webhook: Telegram calls https addresses only",
        ),
        (
            f"channels: {{a: {{{SLACK}, signing_secret: s}}}}",
            "bridge.yaml:1: channels.a.signing_secret: needs server.public_url",
        ),
        (
            f"channels: {{a: {{{FEISHU}, {WEBHOOK}}}}}",
            "bridge.yaml:1: channels.a.mode: webhook needs server.public_url",
        ),
        (
            "server: {host: 0.0.0.0}\nchannels: {a: {platform: web}}",
            "bridge.yaml:2: channels.a.access_token: is missing: the page would be open to everybody",
        ),
        (
            "server: {public_url: 'https://x.example'}\nchannels: {a: {platform: web}}",
            "bridge.yaml:2: channels.a.access_token: is missing: the page would be open to everybody who can reach "
            "https://x.example; set it",
        ),
        (
            f"channels:\n  a: {{{TELEGRAM}}}\n  b: {{{TELEGRAM}}}",
            "bridge.yaml:3: channels.b.bot_token: is that of channels.a",
        ),
        (
            f"channels:\n  a: {{{SLACK}, app_token: x}}\n  b: {{platform: slack, bot_token: y, app_token: x}}",
            "bridge.yaml:3: channels.b.app_token: is that of channels.a",
        ),
        (
            f"channels:\n  a: {{{FEISHU}}}\n  b: {{{FEISHU}}}",
            "bridge.yaml:3: channels.b.app_id: is that of channels.a",
        ),
    ],
)
def test_a_channel_that_nobody_could_use_is_found_without_calling_anybody(
    text: str, expected: str, tmp_path: Path
) -> None:
    (found,) = doubts(text, tmp_path)
    assert found.startswith(expected)
    parse_settings(text, "bridge.yaml", tmp_path, {})  # the other channels can run all the same


@pytest.mark.parametrize(
    "text",
    [
        f"server: {{public_url: 'https://x.example'}}\nchannels: {{a: {{{TELEGRAM}, mode: webhook}}}}",
        f"channels: {{a: {{{SLACK}, app_token: x, signing_secret: s}}}}",
        f"channels: {{a: {{{TELEGRAM}}}, b: {{{TELEGRAM}, enabled: false, mode: webhook}}}}",
        "server: {host: 0.0.0.0}\nchannels: {a: {platform: web, access_token: long-enough}}",
        "server: {public_url: 'https://x.example'}\nchannels: {a: {platform: web, access_token: long-enough}}",
        "server: {host: '::1'}\nchannels: {a: {platform: web}, b: {platform: web, path: /b}}",
    ],
)
def test_what_can_be_used_raises_no_doubt(text: str, tmp_path: Path) -> None:
    assert doubts(text, tmp_path) == []


@pytest.mark.parametrize(
    ("first", "second"), [("/", "/"), ("/team", "/team/"), ("/", "/events"), ("/files/x", "/"), ("/a", "/a/static")]
)
def test_two_pages_of_which_one_hides_the_other_are_an_error(first: str, second: str) -> None:
    text = f"channels:\n  a: {{platform: web, path: {first}}}\n  b: {{platform: web, path: {second}}}"
    with pytest.raises(ConfigError, match=r"bridge.yaml:3: channels.b.path: the page of channels.a is at /"):
        parse_settings(text, "bridge.yaml", Path(), {})


def test_pages_may_be_below_each_other() -> None:
    paths = ("/", "/team", "/team/x", "/teams")
    text = ", ".join(f"c{n}: {{platform: web, path: {path}}}" for n, path in enumerate(paths))
    assert len(parse_settings(f"channels: {{{text}}}", "bridge.yaml", Path(), {}).channels) == len(paths)


@pytest.mark.parametrize("path", ["/console", "/console/", "/hooks/x", "/readyz", "/metrics", "/healthz"])
def test_a_page_cannot_be_where_the_bridge_itself_answers(path: str) -> None:
    with pytest.raises(ConfigError, match="the bridge itself answers at"):
        parse_settings(f"channels: {{a: {{platform: web, path: {path}}}}}", "bridge.yaml", Path(), {})


@pytest.mark.parametrize("path", ["chat", "//chat", "/a//b", "/a/../b", "/a b", "/a?b", "/{a}", "/%41"])
def test_a_path_that_no_browser_asks_for_is_an_error(path: str) -> None:
    with pytest.raises(ConfigError, match="expected a path"):
        parse_settings(f"channels: {{a: {{platform: web, path: '{path}'}}}}", "bridge.yaml", Path(), {})


def first_parts(routes: object) -> set[str]:
    assert isinstance(routes, list)
    return {route.path.split("/")[1] for route in routes} - {""}


def test_the_addresses_of_the_bridge_are_those_that_it_answers() -> None:
    app = build_app(
        lambda: pytest.fail("nobody asked"),
        bytes,
        AdminGuard("127.0.0.1", None),
        hooks={"a": lambda scope, receive, send: pytest.fail("nobody asked")},
        console=(),
        mounts={},
    )
    assert first_parts(app.routes) | {"console"} == OWN_ADDRESSES


def test_the_addresses_of_a_page_are_those_that_it_answers() -> None:
    nothing: Context = None  # type: ignore[assignment]
    pages = Pages(WebChannel(), nothing, Cookies("k", None, None), None, None, None)  # type: ignore[arg-type]
    assert first_parts(pages.app().routes) == PAGE_ADDRESSES
