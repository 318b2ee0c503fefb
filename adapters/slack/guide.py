"""What `channel-bridge init slack` prints: how to make the app at Slack."""

from __future__ import annotations

from adapters.slack.manifest import manifest


def guide() -> str:
    """The steps, with the manifest to paste."""
    return f"""Slack: how to make the app

1. Open https://api.slack.com/apps, choose "Create New App", "From a manifest", your workspace, and paste:

{manifest()}
   If Slack does not know `agent_view` yet, replace it by:
     assistant_view: {{assistant_description: Ask me anything., suggested_prompts: []}}
   and, if it does not know the event agent_session_stopped, leave that line out.

2. "Basic Information", "App-Level Tokens": make a token with the scope connections:write. It begins with xapp-.
3. "Install App": install it to the workspace and copy the "Bot User OAuth Token". It begins with xoxb-.
4. In the configuration:

   channels:
     my-slack:
       platform: slack
       bot_token: $SLACK_BOT_TOKEN
       app_token: $SLACK_APP_TOKEN

5. `channel-bridge check` tries both tokens and names missing scopes.
6. Invite the app to a channel (/invite @Channel Bridge) and mention it, or send it a direct message.

Without Socket Mode (Slack posts to you): set socket_mode_enabled to false and the request URL of events,
interactivity and the slash command to https://YOUR-HOST/hooks/my-slack; give `signing_secret` (from "Basic
Information") instead of `app_token`, and set server.public_url. Slack checks the URL when you save it, so start the
bridge first.
"""
