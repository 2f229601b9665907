"""A value in a shell command arrives as it is, wherever it stands, in the shells of this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hark.programs.expressions import ExpressionError, compile_template

SHELLS = list(
    {os.path.realpath(path): shell for shell in ("dash", "bash", "sh") if (path := shutil.which(shell))}.values()
)
TRICKY = [
    "", " ", "it's", '"', "$HOME", "$(echo no)", "`echo no`", "\\", "a\\", "\n# x\necho no", "-n", "*", "~", "é 😀",
    "!x",
]  # fmt: skip

CHARACTERS = st.characters(exclude_characters="\0\r", exclude_categories=["Cs"])

PLACES = r"""
show() { for part in "$@"; do printf '<%s>' "$part"; done; printf '\n'; }
# a comment with {{ x }} in it
show {{ x }} a{{ x }}b '{{ x }}' "{{ x }}" 'a'"b{{ x }}"'{{ x }}c'
show $(printf '%s.' {{ x }}) >/dev/null
show "$(printf '%s.' {{ x }} '{{ x }}')" "$(printf '%s.' "{{ x }}")" "$( (:); printf '%s.' {{ x }})"  # {{ x }}
y={{ x }}; show "$y" \
  {{ x }} "${y}$((1 + {{ n }}))"
cat <<-'END' <<< here >/dev/null || true
	it's "not" a quote
	END
case a in b) show no;; a) show {{ x }};; esac
"""


def run(shell: str, command: str) -> str:
    done = subprocess.run([shell, "-c", command], capture_output=True, text=True, check=False, timeout=60)
    assert done.stderr == "", f"{command}\n{done.stderr}"
    return done.stdout


def expected(x: str) -> str:
    substituted = (f"{x}.{x}.", f"{x}.", f"{x}.")
    lines = [[x, f"a{x}b", x, x, f"ab{x}{x}c"], [*substituted], [x, x, f"{x}4"], [x]]
    return "".join("".join(f"<{part}>" for part in line) + "\n" for line in lines)


@pytest.mark.parametrize("shell", SHELLS)
@settings(max_examples=20, deadline=None)
@given(st.sampled_from(TRICKY) | st.text(CHARACTERS, max_size=8))
def test_a_value_arrives_as_it_is(shell: str, x: str) -> None:
    places = PLACES if shell == "bash" else PLACES.replace("<<< here ", "")
    command = compile_template(places).render_shell({"x": x, "n": 3})
    assert run(shell, command) == expected(x)


LOOP = r"""
IFS=; set -f; y=y
hit() { printf HIT; }
show() { printf '<%s>' "$@"; }
cat() { while IFS= read -r line; do printf '[%s]' "$line"; done; }
while read -r command; do (eval "$(printf '%b' "$command")") </dev/null 2>/dev/null; printf '\036\n'; done
"""


class Shell:
    """A shell that runs one command after the other, each in a subshell; commands may be wrong."""

    def __init__(self, name: str) -> None:
        self.process = subprocess.Popen([name, "-c", LOOP], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout

    def run(self, command: str) -> str:
        self.stdin.write("".join(f"\\0{byte:03o}" for byte in command.encode()).encode() + b"\n")
        self.stdin.flush()
        output = b""
        while not output.endswith(b"\x1e\n"):
            line = self.stdout.readline()
            assert line, "the shell has ended"
            output += line
        return output[:-2].decode(errors="replace")


@pytest.fixture(scope="module", params=SHELLS)
def shell_process(request: pytest.FixtureRequest) -> Iterator[Shell]:
    shell = Shell(request.param)
    with shell.process:
        yield shell
        shell.stdin.close()


PARTS = st.lists(
    st.sampled_from([
        "'", '"', "`", "\\", "$", "#", " #", " ", "\n", "\\\n", "\t", "; ", " && ", "(", ")", "<", "<<", "<<E", "-",
        "a", "cat <<E\n", "cat <<-E\n", "cat <<'E'\n", "cat <<-\\E\n", "E", "E\n", "\nE\n", "\tE\n", "# it's\n",
        "$(show ", '"$(show ', "${y", "${y-", "}", "$y", "y=", "case a in a) ", ";; esac", "show ", "show a",
        "show {{ x }}\n", "{{ x }}",
    ]),
    max_size=6,
).map("".join)  # fmt: skip
HOLES = st.sampled_from(["{{ x }}", "show {{ x }}\n", 'show "{{ x }}"\n', "show '{{ x }}'\n", " # {{ x }}\n"])
CODE = [
    "$(hit)", "`hit`", "\nhit\n", "'\nhit\n'", '"\nhit\n"', ";hit;", "';hit;'", '";hit;"', "\nE\nhit\n", ")\nhit\n(",
    "'\"$(hit)`hit`\nhit\n'\nhit\n\"\nhit\nE\nhit\n;",
]  # fmt: skip


@settings(max_examples=300)
@given(st.tuples(PARTS, HOLES, PARTS).map("".join), st.sampled_from(CODE))
@example("cat <<E\n\tE\nshow {{ x }}\nE\n", "$(hit)")
@example("show a \\\n# {{ x }}\n", "\nhit\n")
@example("show a\\\n# '{{ x }}'\n", "$(hit)")
@example("cat <<E\na\\\nE\nshow {{ x }}\nE\n", "$(hit)")
@example("cat <<-E\n\t\\\n\tE\nshow {{ x }}\nE\n", "$(hit)")
@example("cat <<E\n$(show a\nE\nshow '{{ x }}'\nE\n)\nE\n", "';hit;'")
@example("cat <<E <<F\nE\n{{ x }}\nF\n", "$(hit)")
@example("cat <\\\n<E\nshow {{ x }}\nE\n", "$(hit)")
@example('show "$\\\n(show {{ x }})"\n', "\nhit\n")
def test_a_value_is_never_code(shell_process: Shell, command: str, code: str) -> None:
    """With code as the value, a shell prints what it prints with a harmless value: only the value differs."""
    template = compile_template(command)
    try:
        harmless, harmful = (template.render_shell({"x": value}) for value in ("harmless", code))
    except ExpressionError:
        return  # refused
    assert shell_process.run(harmful) == shell_process.run(harmless).replace("harmless", code)


@pytest.mark.parametrize(
    "command",
    [
        "echo `echo {{ x }}`",
        "echo ${a:-{{ x }}}",
        "cat <<END\n{{ x }}\nEND",
        "cat << 'END' && echo y\n{{ x }}\nEND",
        "cat <<{{ x }}",
        "echo \\{{ x }}",
        'echo "\\{{ x }}"',
        "echo ${{ x }}",
        'echo "${{ x }}"',
        "echo $((1 + {{ x }}))",
        "echo $['{{ x }}']",
        "echo $'a\\'' {{ x }}",
        """echo "${a#'}" {{ x }}""",
        "echo $(case a in a) echo {{ x }};; esac)",
        "(( a < 1 )) && echo {{ x }}",
        "cat <<E\na\\\nE\necho {{ x }}\nE",
        "cat <<'F' <<E\nF\na\\\nE\necho {{ x }}\nE",
        "cat <<E\n`a\nE\n`\nE\necho {{ x }} `",
        "cat <<E\n$(echo a\nE\necho {{ x }}\nE\n)\nE",
        "cat <\\\n<E\necho {{ x }}\nE",
        "echo $(\\\n(1 + {{ x }}))",
        "(\\\n( a < 1 )) && echo {{ x }}",
        "echo `a \\` {{ x }}`",
        'echo "$\\\n(echo {{ x }})"',
    ],
)
def test_a_value_that_cannot_be_quoted_at_its_place_is_refused(command: str) -> None:
    template = compile_template(command)
    with pytest.raises(ExpressionError) as caught:
        template.render_shell({"x": "a"})
    assert caught.value.position == command.index("{{") + 3
    if "$((1" not in command:  # whether it is a number is known only with the value
        with pytest.raises(ExpressionError):
            template.check_shell()


def test_a_here_document_does_not_change_what_follows_it() -> None:
    """Neither backslashes in a quoted one, nor a substitution that ends in its line."""
    command = "cat <<'E'\n$(a\\\nE\ncat <<F\n$\n(a\n\\$( it's $(date) ${y} `date` \\\\ x\nF\necho {{ x }}"
    assert compile_template(command).render_shell({"x": "it"}) == command.replace("{{ x }}", "'it'")


def test_a_raw_value_is_not_quoted_and_its_quotes_count() -> None:
    template = compile_template("echo {{ x | raw }}{{ y }}{{ x | raw }}")
    assert template.render_shell({"x": "a b ", "y": "c d"}) == "echo a b 'c d'a b "
    assert template.render_shell({"x": '"', "y": "$c"}) == 'echo "\\$c"'
    assert template.render_shell({"x": "'", "y": "it's"}) == "echo 'it'\\''s'"
    template.check_shell()


def test_other_values_are_json() -> None:
    command = compile_template("echo {{ a }} {{ b }} {{ c }} {{ d }}").render_shell(
        {"a": 1, "b": None, "c": True, "d": ["x"]}
    )
    assert command == """echo '1' 'null' 'true' '["x"]'"""


def test_a_nul_is_refused() -> None:
    with pytest.raises(ExpressionError, match="NUL"):
        compile_template("echo {{ x }}").render_shell({"x": "a\0b"})
