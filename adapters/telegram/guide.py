"""What `channel-bridge init telegram` shows."""

from __future__ import annotations

_GUIDE = """\
Telegram

1. Write to @BotFather in Telegram and send /newbot. Choose a name and a username that ends in "bot".
   BotFather answers with the token, such as 123456:ABC-DEF. Keep it secret:
       export TELEGRAM_BOT_TOKEN=123456:ABC-DEF
2. Add the channel to your configuration:
       channels:
         my-telegram:
           platform: telegram
           bot_token: $TELEGRAM_BOT_TOKEN
3. For groups: add the bot to the group. With privacy mode (the default) it sees commands, mentions of its
   username and replies to its messages. To let it see everything, send /setprivacy to @BotFather, choose
   the bot and "Disable", then remove it from the group and add it again; `policy.groups: all` makes it
   answer everything.
4. For topics: they work as they are; every topic is a conversation of its own.
5. Webhooks instead of polling (needs an https address that Telegram can reach, on port 443, 80, 88 or 8443):
       server:
         public_url: https://bridge.example.com
       channels:
         my-telegram:
           mode: webhook
   The bridge sets the webhook itself, with a secret, at https://bridge.example.com/hooks/my-telegram.
6. Try it:
       channel-bridge check --config config.yaml
       channel-bridge run --config config.yaml
   Only one program may receive a bot's updates: a second one shows as the state "conflict".
"""


def guide() -> str:
    """How to create a bot and let the bridge run it."""
    return _GUIDE
