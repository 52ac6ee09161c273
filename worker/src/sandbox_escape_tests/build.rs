//! Build tools, tests and linters that execute code: all of it runs inside the sandbox.

use super::{
    escape_case::{EscapeCase, shell_case},
    host_fixture::EscapeKind::OutsideChanged,
};

fn build_case(id: &'static str, line: &'static str, needs: &'static str) -> EscapeCase {
    shell_case(id, line).expect_escape(OutsideChanged).require_program(needs)
}

pub(super) fn cases() -> Vec<EscapeCase> {
    vec![
        build_case(
            "build-make-shell",
            "printf 'X := $(shell echo x > {out}/pwned)\\nall:\\n\\t@true\\n' > Makefile; make -s",
            "make",
        ),
        build_case(
            "build-make-dry-run",
            "printf 'X != echo x > {out}/pwned\\nall:\\n\\t@true\\n' > Makefile; make -n",
            "make",
        ),
        build_case(
            "build-make-included",
            "printf 'include more\\nmore:\\n\\techo x > {out}/pwned\\n' > Makefile; make -s",
            "make",
        ),
        build_case(
            "build-python-site",
            "printf \"open('{out}/pwned', 'w')\\n\" > sitecustomize.py; PYTHONPATH=. python3 -c pass",
            "python3",
        ),
        build_case(
            "build-python-module-shadowed",
            "printf \"open('{out}/pwned', 'w')\\n\" > this.py; python3 -c 'import this'",
            "python3",
        ),
        build_case(
            "build-python-path-file",
            "d=$(mktemp -d -p .); printf \"import os; open('{out}/pwned', 'w')\\n\" > $d/x.pth; python3 -c \"import site; site.addsitedir('$d')\"",
            "python3",
        ),
        build_case(
            "build-pytest-conftest",
            "printf \"open('{out}/pwned', 'w')\\n\" > conftest.py; python3 -m pytest -q --collect-only",
            "pytest",
        ),
        build_case(
            "build-pytest-options",
            "printf '[pytest]\\naddopts = -p evil\\n' > pytest.ini; printf \"open('{out}/pwned', 'w')\\n\" > evil.py; PYTHONPATH=. python3 -m pytest -q --collect-only",
            "pytest",
        ),
        build_case(
            "build-setup-py",
            "printf \"open('{out}/pwned', 'w')\\nfrom setuptools import setup\\nsetup(name='x')\\n\" > setup.py; python3 setup.py --version",
            "setuptools",
        ),
        build_case(
            "build-npm-script",
            "printf '{\"scripts\":{\"test\":\"echo x > {out}/pwned\"}}' > package.json; npm --silent --offline test",
            "npm",
        ),
        build_case(
            "build-node-preload",
            "printf \"require('fs').writeFileSync('{out}/pwned', 'x')\" > p.js; NODE_OPTIONS='-r ./p.js' node -e 1",
            "node",
        ),
        build_case(
            "build-cargo-wrapper",
            "mkdir -p .cargo src; printf '#!/bin/sh\\necho x > {out}/pwned\\nexit 1\\n' > w; chmod 755 w; printf '[build]\\nrustc-wrapper = \"./w\"\\n' > .cargo/config.toml; printf '[package]\\nname=\"x\"\\nversion=\"0.1.0\"\\n[workspace]\\n' > Cargo.toml; touch src/lib.rs; cargo check --offline -q",
            "cargo",
        ),
        build_case(
            "build-cargo-alias",
            "mkdir -p .cargo src; printf '[alias]\\nb = \"run\"\\n[env]\\nX=\"1\"\\n[build]\\nrustc = \"./w\"\\n' > .cargo/config.toml; printf '#!/bin/sh\\necho x > {out}/pwned\\nexit 1\\n' > w; chmod 755 w; printf '[package]\\nname=\"x\"\\nversion=\"0.1.0\"\\n[workspace]\\n' > Cargo.toml; touch src/lib.rs; cargo check --offline -q",
            "cargo",
        ),
        build_case(
            "build-rust-toolchain-folder",
            "mkdir -p tc/bin; printf '#!/bin/sh\\necho x > {out}/pwned\\n' > tc/bin/cargo; cp tc/bin/cargo tc/bin/rustc; chmod 755 tc/bin/*; mkdir -p tc/lib; printf '[toolchain]\\npath = \"%s/tc\"\\n' $PWD > rust-toolchain.toml; cargo --version",
            "cargo",
        ),
        build_case(
            "build-script",
            "mkdir src; printf '[package]\\nname=\"x\"\\nversion=\"0.1.0\"\\n[workspace]\\n' > Cargo.toml; touch src/lib.rs; printf 'fn main() { std::fs::write(\"{out}/pwned\", \"x\").unwrap(); }' > build.rs; cargo check --offline -q",
            "cargo",
        ),
        build_case(
            "build-compiler-wrapper",
            "printf '#!/bin/sh\\necho x > {out}/pwned\\n' > w; chmod 755 w; echo 'int x;' > x.c; cc -wrapper ./w -c x.c",
            "cc",
        ),
        build_case("build-compiler-output", "echo 'int x;' > x.c; cc -c x.c -o {out}/pwned", "cc"),
        build_case(
            "build-preloaded-library",
            "printf '#include <stdio.h>\\n__attribute__((constructor)) static void f(void) { FILE *o = fopen(\"{out}/pwned\", \"w\"); if (o) fputs(\"x\", o); }' > l.c; cc -shared -fPIC l.c -o l.so; LD_PRELOAD=$PWD/l.so /bin/true",
            "cc",
        ),
        build_case(
            "build-perl-library",
            "mkdir l; printf 'open(F, \">\", \"{out}/pwned\"); 1;' > l/P.pm; PERL5OPT='-Il -MP' perl -e 1",
            "perl",
        ),
        build_case(
            "build-shell-startup",
            "printf 'echo x > {out}/pwned\\n' > rc; BASH_ENV=$PWD/rc bash -c true; ENV=$PWD/rc sh -ic true </dev/null",
            "bash",
        ),
        build_case(
            "build-program-in-the-way",
            "printf '#!/bin/sh\\necho x > {out}/pwned\\n' > git; cp git python3; cp git cargo; cp git ruff; chmod 755 git python3 cargo ruff; PATH=.:$PATH; git; cargo",
            "bash",
        ),
    ]
}
