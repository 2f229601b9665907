"""A value in a shell command arrives as it is, wherever it stands, in the shells of this machine, and never runs."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

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

    def __init__(self, name: str, directory: Path) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([name, "-c", LOOP], stdin=pipe, stdout=pipe, cwd=directory)
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
def shell_process(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    shell = Shell(request.param, tmp_path_factory.mktemp("shell"))
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
@example('show "$$({{ x }})"\n', "$(hit)")
@example("cat <<E; show $(\nE\n) {{ x }}\n", "\nE\nhit\n")
@example("show $(cat <<E)\nE\nshow {{ x }}\n", "\nE\nhit\n")
@example('cat <<"E\\"F"G"H\nE\\FGH\nshow {{ x }}\n', "$(hit)")
@example("cat <<E\n$(show a <<F\nE\n) {{ x }}\nE\n", "$(hit)")
def test_a_value_is_never_code(shell_process: Shell, command: str, code: str) -> None:
    """With code as the value, a shell prints what it prints with a harmless value: only the value differs."""
    template = compile_template(command)
    try:
        harmless, harmful = (template.render_shell({"x": value}) for value in ("harmless", code))
    except ExpressionError:
        return  # refused
    assert shell_process.run(harmful) == shell_process.run(harmless).replace("harmless", code)


RANDOM_PARTS = [
    "'", '"', "`", "\\", "\\\\", "$", "$$", "#", " ", "\n", "\\\n", "\\\\\n", "\t", "; ", " && ", "|", "(", ")", "<",
    "<<", "cat <<E\n", "cat <<-E\n", "cat <<'E'\n", "cat <<E <<F\n", "cat <<E; show ", "cat <<E'F'\n", "cat <<\\E\n",
    "F\n", "E\n", "\nE\n", "E", "\\E\n", "\\\nE\n", "EF\n", "$(cat <<E\n", "$(show ", '"$(show ', "${y", "${y-",
    "${#", "}", "$'", '$"', ">", "$((1", "))", "((", "[[ ", " ]]", "a[", "]=", "a=(", "<(", "<<<", "y=",
    "case a in a) ", ";; esac", "f() { ", "if :; then ", "\nfi\n", "show ", "show a\n", "show {{ x }}\n",
    "show '{{ x }}'\n", 'show "{{ x }}"\n', "{{ x }}",
]  # fmt: skip
RANDOM_HOLES = ["{{ x }}", "show {{ x }}\n", 'show "{{ x }}"\n', "show '{{ x }}'\n", " # {{ x }}\n"]
MORE_CODE = ["\\", "}hit;", "]]\nhit\n", "))\nhit\n", "\\\nE\nhit\n", "\nE\nF\nhit\n", "|hit|", "}$(hit)", "E\nhit\n"]


def test_j2_no_input_runs_in_any_of_a_thousand_random_commands(shell_process: Shell) -> None:
    """Whatever the command and however a shell reads it: what runs is the same for a harmless and a harmful value."""
    chance = random.Random(1)
    ran = 0
    while ran < 1000:
        parts = chance.sample(RANDOM_PARTS, 10)
        before, after = (chance.choices(parts, k=chance.randint(0, most)) for most in (8, 4))
        command = "".join([*before, chance.choice(RANDOM_HOLES), *after])
        code = chance.choice([*CODE, *MORE_CODE])
        try:
            harmless, harmful = (compile_template(command).render_shell({"x": value}) for value in ("harmless", code))
        except ExpressionError:
            continue  # refused
        ran += 1
        hits = [shell_process.run(command).count("HIT") for command in (harmless, harmful)]
        assert hits[0] == hits[1], (command, code)


def test_j2_the_text_of_a_command_is_the_same_whatever_its_values_are() -> None:
    """Its text is parsed as a whole, so a value that is not in it cannot be code in any shell."""
    template = compile_template("""show {{ x }} "{{ x }}$({{ x }})" '{{ x }}' # {{ x }}""")
    texts = {template.render_shell({"x": code}).removeprefix(assignments(code, 5)) for code in (*CODE, *MORE_CODE)}
    assert texts == {
        """show "${hark_value_1}" "${hark_value_2}$("${hark_value_3}")" ''"${hark_value_4}"'' # ${hark_value_5}"""
    }


def assignments(value: str, times: int) -> str:
    quoted = value.replace("'", "'\\''")
    return "".join(f"hark_value_{number}='{quoted}'; " for number in range(1, times + 1))


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
        "cat <<E; echo $(\nE\n) {{ x }}",
        "cat <<E 'a\nb'; echo {{ x }}\nE",
        "echo $(cat <<E)\nE\necho {{ x }}",
        'cat <<"E\\"F"G"H\nE\\FGH\necho {{ x }}',
        "cat <<E\n$(echo a <<F\nE\n) {{ x }}\nE",
        "cat <<$(a)\n$(a)\necho {{ x }}",
        "cat <<'E\n'\nE\n\necho {{ x }}",
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
    assert compile_template(command).render_shell({"x": "it"}) == (
        assignments("it", 1) + command.replace("{{ x }}", '"${hark_value_1}"')
    )


def test_a_raw_value_is_not_quoted_and_its_quotes_count() -> None:
    template = compile_template("echo {{ x | raw }}{{ y }}{{ x | raw }}")
    for raw, value, written in (
        ("a b ", "c d", 'echo a b "${hark_value_1}"a b '),
        ('"', "$c", 'echo "${hark_value_1}"'),
        ("'", "it's", """echo ''"${hark_value_1}"''"""),
    ):
        assert template.render_shell({"x": raw, "y": value}) == assignments(value, 1) + written
    template.check_shell()


def test_other_values_are_json() -> None:
    command = compile_template("printf '<%s>' {{ a }} {{ b }} {{ c }} {{ d }}").render_shell(
        {"a": 1, "b": None, "c": True, "d": ["x"]}
    )
    assert run("sh", command) == '<1><null><true><["x"]>'


def test_a_nul_is_refused() -> None:
    with pytest.raises(ExpressionError, match="NUL"):
        compile_template("echo {{ x }}").render_shell({"x": "a\0b"})
