"""What the demo agent has to say at length."""

from __future__ import annotations

SUGGESTIONS: tuple[tuple[str, str], ...] = (
    ("what is 17 * 23?", "uses a calculator"),
    ("weather in Paris and Tokyo", "two tools at once, answered with a table"),
    ("research solar power", "a sub-agent does the work and reports its steps"),
    ("book a table", "I ask you back, with buttons"),
    ("show me some code", "a code block, kept whole while it grows"),
    ("show me a table", "a table"),
    ("你好", "Chinese, and some emoji"),
    ("tell me a long story", "a long answer; stop it whenever you like"),
    ("slow tool", "what you see while a tool is silent for some seconds"),
    ("how do I stop an answer?", "searches my own help"),
    ("fail", "what you see when the agent breaks; why it broke is for the terminal, traceback and all"),
    ("what did I say before?", "I remember this conversation"),
)


def _listed(suggestions: tuple[tuple[str, str], ...]) -> str:
    return "\n".join(f"- `{example}`: {what}" for example, what in suggestions)


WELCOME = f"""Hello! 👋 I am the demo agent of **Channel Bridge**. No model is behind me, only a script, but \
everything else is real: a LangGraph graph runs, streams its pieces, calls tools and asks questions, and the bridge \
brings it to you.

**Things to try**

{_listed(SUGGESTIONS)}

Set `OPENAI_API_KEY` and start me again, and a real model answers instead of the script. How the bridge itself is \
doing is shown at `/console` of its address."""

WELCOME_CHINESE = """你好！👋 我是 **Channel Bridge** 的演示助手。我背后没有大模型，只有一份脚本，\
但其余的一切都是真的：LangGraph 在运行，答案一段一段地流出来，工具会被调用，需要时我也会反过来问你。

**可以试试**

- `weather in 北京 and 东京`：同时调用两个工具 🌤️
- `17 * 23 等于多少？`：用计算器 🧮
- `book a table`：我会用按钮向你提问 🍽️
- `tell me a long story`：一个很长的回答，随时可以停下 📖

表情也没有问题：🎉 🐼 🧧 👩‍💻 🇨🇳。祝你玩得开心！"""

CODE = """Here is a small function, and how to use it:

```python
from collections.abc import Iterator


def pieces(text: str, size: int = 4) -> Iterator[str]:
    \"\"\"Yield `text` in parts of `size` characters.\"\"\"
    for start in range(0, len(text), size):
        yield text[start : start + size]


for piece in pieces("Channel Bridge"):
    print(piece, end="", flush=True)  # Chan|nel |Brid|ge
```

And the same idea in a shell:

```sh
echo "Channel Bridge" | fold -w 4
```

The fence stays closed at every moment while this text grows, whatever the platform."""

TABLE = """Here is a table of how each platform shows a growing answer:

| Platform | Message grows by | Text limit | Buttons |
|:--|:--|--:|:-:|
| Feishu | streaming card | 30 KB | ✅ |
| Slack | native stream, or edits | 12,000 | ✅ |
| Telegram | edits | 4,096 | ✅ |
| Web | events to the browser | none | ✅ |

On a platform without tables it becomes readable text."""

STORY = """# The Keeper of the Three Bridges

## 1. The river

Where the river Ansel leaves the mountains it is too wide to shout across, and so for a long time the people on \
its banks did not know each other's names. On the western side lived the weavers, who spoke in long and careful \
sentences. On the eastern side lived the boatmen, who spoke in short ones. Further down, where the marsh begins, \
lived the glassblowers, and they hardly spoke at all, because a glassblower who talks at work burns the lips. \
Everyone could see the smoke of everyone else's fires. That was all they had of each other.

## 2. The first plank

One spring a young woman called Mirel came down from the pass with a mule, a coil of rope and a letter that \
nobody had asked her to deliver. It had been lying in an inn for eleven years, addressed to "the house with the \
blue door, beyond the river". Mirel could not bear an undelivered letter. She looked at the water, she looked at \
the rope, and she began to build. The weavers brought her bread and many opinions. The boatmen brought her nails \
and said: "Crooked." It was crooked. She took the planks off again and laid them straight, and in the autumn she \
walked across.

## 3. The blue door

The house with the blue door belonged to an old man who repaired nets. He read the letter twice. It was from a \
brother he had believed to be dead, and it ended with the words *write soon*. He laughed until he had to sit \
down. Then he took a fresh sheet, wrote for an hour, folded it and gave it to Mirel. "And how," he asked, "do I \
know that it arrives?" Mirel thought about it on the whole way back. A letter that is sent is not a letter that \
arrives. That, she decided, was the real work: not to carry, but to know that it was carried.

## 4. The book

So she kept a book. In the left column she wrote what she had been given, before she took a single step. In the \
right column she wrote what had been put into somebody's hand, and who had nodded. Between the two columns there \
was, on most evenings, nothing at all, and then she slept well. But sometimes a line on the left had no partner \
on the right, because of fog, or a fever, or a mule with its own ideas. Then she got up, lit the lamp, and went. \
"You could simply send it again," said the boatmen, who liked things simple. "And if it did arrive," said Mirel, \
"shall the good man get two wives, two bills and two goats?" The boatmen saw that.

## 5. The goat

It was a goat, in the end, that made her rule. A weaver had sold one to a boatman, and the goat was on its way \
when the fog came down. On the eastern side nobody had seen it. On the western side it had certainly left. So \
the weaver, who was an honest woman, sent a second goat; and when the fog lifted, there were two goats on the \
far bank, one of them eating the other's rope, and a boatman who had paid for one and could not say which. Mirel \
gave each of them a small tin tag with a number, the number she had written in the left column. From that day on \
a boatman who was handed a goat looked at the tag first. If he knew the number, he said thank you and sent the \
goat home. The goats did not mind.

## 6. The second bridge

The marsh was harder. Nothing stood in it; every post sank by the width of a hand each month. The glassblowers \
watched her for a while without a word, and then one of them came out with a lantern, set it on a stone that did \
not move, and went back in. The next evening there was a lantern on another stone. It took Mirel a week to \
understand that they were drawing her a line. She built where the lanterns stood. When she had reached the last \
one, the whole village was there, and the oldest of them said the only sentence that anyone ever heard from her: \
"You looked first."

## 7. The hurry

With two bridges came haste. Everybody wanted to hear everything at once. The weavers sent a runner for every \
sentence, sometimes for every word, and the runners met in the middle, where the bridge was narrow, and pushed. \
One windy day eleven of them stood there and none could move, each with one word of the same message in the \
hand. Mirel closed the gate. "From now on," she said, "one runner goes, and he carries whatever has been said by \
the time he sets out. If you say more while he is on his way, the next one carries it." The weavers complained \
that this was slower. It was three times as fast.

## 8. The flood

In the ninth year the river took the first bridge. It went in one night, with a sound like a door. Mirel was on \
the wrong side, without her lamp, without her mule, with wet feet and, under her coat, the book. In the morning \
she sat down on a stone and read it from the last page backwards, until she came to a line that had a partner. \
Everything below it was open: a bag of seed, a wedding invitation, a quarrel about a fence, half of a very long \
poem. She borrowed a boat. By the evening of the third day every line had its partner, and of the poem not a \
single verse had come twice, although it was the sort of poem in which nobody would have noticed.

## 9. The third bridge

They built the new bridge together. The weavers made the ropes, and argued about each of them. The boatmen set \
the posts and said: "Straight." The glassblowers made a lamp for every tenth step, green on one side and amber \
on the other, so that even a stranger could see in the dark which way was home. It was not the widest bridge in \
the country, and not the highest. But children crossed it to go to school, and after one generation the weavers' \
sentences had become a little shorter and the boatmen's a little longer. The glassblowers, it is said, have been \
heard to hum.

## 10. The keeper

Mirel grew old in the small house in the middle of the bridge, which has one door to each side and no lock on \
either. When travellers ask what she does there all day, she shows them the book. "Left," she says, "what was \
given. Right, what arrived." And in between? "In between," says the keeper, and closes the book, because \
somebody is coming from the west with a letter in the hand, "in between is nothing at all. That is the whole \
art."

*The end.* 🌉"""

HELP_PAGES: tuple[tuple[str, str], ...] = (
    ("Stop an answer", "Send `/stop`, or press the stop button. What has been written so far stays."),
    ("Start a new conversation", "Send `/new`. I forget what was said before in this place."),
    ("Try a question again", "Send `/retry` to ask your last question once more."),
    ("See what is going on", "Send `/status`. It tells whether an answer is being worked on, and for how long."),
    ("Get help", "Send `/help` for the list of commands."),
    ("See how the bridge is doing", "Open `/console` at the bridge's address: its channels, and what was given up."),
    ("Use a real model", "Set `OPENAI_API_KEY` (and, if you like, `OPENAI_BASE_URL` and `OPENAI_MODEL`) and restart."),
    (
        "Use your own agent",
        "Set `gateway.graph` in the config to `module:attribute`, the name of your LangGraph graph.",
    ),
    ("Use a LangGraph server", "Set `gateway.url` in the config to the address of your LangGraph-compatible server."),
)
