"""An agent that needs no network: `agent.py ROLE [MODEL]`.

A real one is configured in the same way, as a command line. It gets the prompt on stdin and the path of a JSON file
with the context in HARK_CONTEXT. What it writes to stderr is its stream, what it writes to stdout is its output.
"""

import json
import os
import sys


def main() -> None:
    role, model = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "none"
    prompt = sys.stdin.read().strip()
    with open(os.environ["HARK_CONTEXT"], encoding="utf-8") as file:
        context = json.load(file)
    print(f"{role} (model {model}) has read: {prompt.splitlines()[0]}", file=sys.stderr, flush=True)
    if role == "writer":
        subject = context["inputs"]["subject"]
        output = {"title": subject.capitalize(), "text": f"Nothing is lost: that is the point of {subject}."}
    else:
        output = {"score": min(10, len(prompt) // 10), "task": context["task"]}
    print(json.dumps(output))


if __name__ == "__main__":
    main()
