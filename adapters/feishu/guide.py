"""What to do at Feishu or Lark before the bridge can run: printed by `channel-bridge init feishu`."""

from __future__ import annotations

SCOPES = (
    ("im:message", "send, change and read messages"),
    ("im:message:send_as_bot", "send as the bot"),
    ("im:message.p2p_msg:readonly", "hear private messages"),
    ("im:message.group_at_msg:readonly", "hear mentions in groups (or im:message.group_msg to hear everything)"),
    ("im:message.reactions:write_only", "the reaction on a question"),
    ("im:resource", "files and pictures"),
    ("cardkit:card:write", "streaming cards"),
    ("contact:user.base:readonly", "people's names (optional)"),
)
EVENTS = (
    ("im.message.receive_v1", "a message was received"),
    ("im.message.recalled_v1", "a message was recalled: stops its answer"),
)
CALLBACKS = (("card.action.trigger", "a card's button or form was used"),)


def guide() -> str:
    """The steps, as plain text."""
    return f"""\
Feishu / Lark: what to set up

1. Open the developer console: https://open.feishu.cn/app (Feishu) or https://open.larksuite.com/app (Lark).
   Create a custom app. Copy App ID and App Secret (Credentials & Basic Info).
2. Add features: Bot.
3. Permissions & Scopes: add these (as app identity).
{_table(SCOPES)}
4. Put the keys into the environment and into the configuration, and start the bridge, so that the console finds it:

     export FEISHU_APP_ID=cli_…  FEISHU_APP_SECRET=…

     channels:
       my-feishu:
         platform: feishu
         app_id: $FEISHU_APP_ID
         app_secret: $FEISHU_APP_SECRET
         # domain: https://open.larksuite.com     for Lark

5. Events & Callbacks, "Receive events through persistent connection" (no public address is needed). Add the events:
{_table(EVENTS)}
   and, under Callback configuration (also by persistent connection):
{_table(CALLBACKS)}
   Instead you may use the webhook: set `mode: webhook`, `encrypt_key` and `verification_token` (Events & Callbacks >
   Encryption strategy) and give the console this address, for events and for callbacks:
     https://YOUR-PUBLIC-ADDRESS/hooks/my-feishu
6. Version Management & Release: create a version and publish it. Scopes and events work only after that.
7. Try it: channel-bridge check --config config.yaml
   Then write to the bot, or add it to a group and mention it.
"""


def _table(rows: tuple[tuple[str, str], ...]) -> str:
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"     {name:{width}}  {purpose}" for name, purpose in rows)
