"""What `channel-bridge check` finds out about a bot."""

from __future__ import annotations

from collections.abc import Sequence

from adapters.telegram.client import Client, Identity
from channels.adapter import Check, Failure
from config.telegram import TelegramChannel, TelegramMode


async def check_bot(settings: TelegramChannel, public_url: str | None) -> Sequence[Check]:
    """Try the token live, on connections of its own. Never raises."""
    client = Client(settings.bot_token.get_secret_value(), settings.api_base_url)
    findings: list[Check] = []
    try:
        bot = await client.open()
        findings += [Check("token", True, f"@{bot.username} ({bot.name})"), _groups(bot)]
        info = await client.webhook_info()
        trouble = info.last_error_message if info.pending_update_count else None
        findings.append(_updates(settings.mode, info.url, public_url, trouble))
    except Failure as failure:
        findings.append(Check("Bot API" if findings else "token", False, str(failure)))
    finally:
        await client.close()
    return findings


def _groups(bot: Identity) -> Check:
    if bot.reads_all:
        return Check("groups", True, "the bot sees every message (privacy mode is off)")
    return Check("groups", True, "the bot sees commands, mentions and replies to it (privacy mode is on)")


def _updates(mode: TelegramMode, webhook: str, public_url: str | None, trouble: str | None) -> Check:
    if mode is TelegramMode.POLLING:
        return Check(
            "updates", True, "by polling; the webhook that is set will be removed" if webhook else "by polling"
        )
    if public_url is None:
        return Check("updates", False, "webhook mode needs server.public_url")
    if not public_url.startswith("https://"):
        return Check("updates", False, "Telegram calls https addresses only: change server.public_url")
    if trouble:
        return Check("updates", False, f"Telegram cannot deliver: {trouble}")
    return Check("updates", True, f"by webhook to {public_url}")
