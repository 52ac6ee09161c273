//! What building, testing and linting execute: all of it runs where commands run.

use super::{
    case::{Case, sh},
    world::Sees::Outside,
};

fn tool(id: &'static str, line: &'static str, needs: &'static str) -> Case {
    sh(id, line).sees(Outside).needs(needs)
}

pub(super) fn cases() -> Vec<Case> {
    vec![
        tool(
            "build-make-shell",
            "printf 'X := $(shell echo x > {out}/pwned)\\nall:\\n\\t@true\\n' > Makefile; make -s",
            "make",
        ),
        tool(
            "build-make-dry-run",
            "printf 'X != echo x > {out}/pwned\\nall:\\n\\t@true\\n' > Makefile; make -n",
            "make",
        ),
        tool(
            "build-make-included",
            "printf 'include more\\nmore:\\n\\techo x > {out}/pwned\\n' > Makefile; make -s",
            "make",
        ),
        tool(
            "build-python-site",
            "printf \"open('{out}/pwned', 'w')\\n\" > sitecustomize.py; PYTHONPATH=. python3 -c pass",
            "python3",
        ),
        tool(
            "build-python-module-shadowed",
            "printf \"open('{out}/pwned', 'w')\\n\" > this.py; python3 -c 'import this'",
            "python3",
        ),
        tool(
            "build-python-path-file",
            "d=$(mktemp -d -p .); printf \"import os; open('{out}/pwned', 'w')\\n\" > $d/x.pth; python3 -c \"import site; site.addsitedir('$d')\"",
            "python3",
        ),
        tool(
            "build-pytest-conftest",
            "printf \"open('{out}/pwned', 'w')\\n\" > conftest.py; python3 -m pytest -q --collect-only",
            "pytest",
        ),
        tool(
            "build-pytest-options",
            "printf '[pytest]\\naddopts = -p evil\\n' > pytest.ini; printf \"open('{out}/pwned', 'w')\\n\" > evil.py; PYTHONPATH=. python3 -m pytest -q --collect-only",
            "pytest",
        ),
        tool(
            "build-setup-py",
            "printf \"open('{out}/pwned', 'w')\\nfrom setuptools import setup\\nsetup(name='x')\\n\" > setup.py; python3 setup.py --version",
            "setuptools",
        ),
        tool(
            "build-npm-script",
            "printf '{\"scripts\":{\"test\":\"echo x > {out}/pwned\"}}' > package.json; npm --silent --offline test",
            "npm",
        ),
        tool(
            "build-node-preload",
            "printf \"require('fs').writeFileSync('{out}/pwned', 'x')\" > p.js; NODE_OPTIONS='-r ./p.js' node -e 1",
            "node",
        ),
        tool(
            "build-cargo-wrapper",
            "mkdir -p .cargo src; printf '#!/bin/sh\\necho x > {out}/pwned\\nexit 1\\n' > w; chmod 755 w; printf '[build]\\nrustc-wrapper = \"./w\"\\n' > .cargo/config.toml; printf '[package]\\nname=\"x\"\\nversion=\"0.1.0\"\\n[workspace]\\n' > Cargo.toml; touch src/lib.rs; cargo check --offline -q",
            "cargo",
        ),
        tool(
            "build-cargo-alias",
            "mkdir -p .cargo src; printf '[alias]\\nb = \"run\"\\n[env]\\nX=\"1\"\\n[build]\\nrustc = \"./w\"\\n' > .cargo/config.toml; printf '#!/bin/sh\\necho x > {out}/pwned\\nexit 1\\n' > w; chmod 755 w; printf '[package]\\nname=\"x\"\\nversion=\"0.1.0\"\\n[workspace]\\n' > Cargo.toml; touch src/lib.rs; cargo check --offline -q",
            "cargo",
        ),
        tool(
            "build-rust-toolchain-folder",
            "mkdir -p tc/bin; printf '#!/bin/sh\\necho x > {out}/pwned\\n' > tc/bin/cargo; cp tc/bin/cargo tc/bin/rustc; chmod 755 tc/bin/*; mkdir -p tc/lib; printf '[toolchain]\\npath = \"%s/tc\"\\n' $PWD > rust-toolchain.toml; cargo --version",
            "cargo",
        ),
        tool(
            "build-script",
            "mkdir src; printf '[package]\\nname=\"x\"\\nversion=\"0.1.0\"\\n[workspace]\\n' > Cargo.toml; touch src/lib.rs; printf 'fn main() { std::fs::write(\"{out}/pwned\", \"x\").unwrap(); }' > build.rs; cargo check --offline -q",
            "cargo",
        ),
        tool(
            "build-compiler-wrapper",
            "printf '#!/bin/sh\\necho x > {out}/pwned\\n' > w; chmod 755 w; echo 'int x;' > x.c; cc -wrapper ./w -c x.c",
            "cc",
        ),
        tool("build-compiler-output", "echo 'int x;' > x.c; cc -c x.c -o {out}/pwned", "cc"),
        tool(
            "build-preloaded-library",
            "printf '#include <stdio.h>\\n__attribute__((constructor)) static void f(void) { FILE *o = fopen(\"{out}/pwned\", \"w\"); if (o) fputs(\"x\", o); }' > l.c; cc -shared -fPIC l.c -o l.so; LD_PRELOAD=$PWD/l.so /bin/true",
            "cc",
        ),
        tool(
            "build-perl-library",
            "mkdir l; printf 'open(F, \">\", \"{out}/pwned\"); 1;' > l/P.pm; PERL5OPT='-Il -MP' perl -e 1",
            "perl",
        ),
        tool(
            "build-shell-startup",
            "printf 'echo x > {out}/pwned\\n' > rc; BASH_ENV=$PWD/rc bash -c true; ENV=$PWD/rc sh -ic true </dev/null",
            "bash",
        ),
        tool(
            "build-program-in-the-way",
            "printf '#!/bin/sh\\necho x > {out}/pwned\\n' > git; cp git python3; cp git cargo; cp git ruff; chmod 755 git python3 cargo ruff; PATH=.:$PATH; git; cargo",
            "bash",
        ),
    ]
}
