//! Finds the import for a missing name of Python's standard library from how the name is used. Pure.
//!
//! A module is recognized by a member that it really has (`time.sleep`), a name by a call or by its use as a decorator;
//! types may appear bare in annotations. Common words (`field`, `time`) are not enough by themselves.

use super::finding::LintFinding;

/// How a missing name is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct NameUsage<'a> {
    /// The character directly before the name.
    char_before: Option<char>,
    /// The rest of its line after the name.
    text_after: &'a str,
}

impl<'a> NameUsage<'a> {
    /// Finds the name of a finding in the text that was linted.
    pub(super) fn from_finding(text: &'a str, finding: &LintFinding) -> Self {
        let place = || {
            let line = text.lines().nth(finding.line.checked_sub(1)?)?;
            let column = finding.column.checked_sub(1)?;
            let at = line.char_indices().nth(column).map_or(line.len(), |(at, _)| at);
            let (before, rest) = line.split_at(at);
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            Some(Self { char_before: before.chars().next_back(), text_after: &rest[end..] })
        };
        place().unwrap_or_default()
    }

    /// The attribute accessed on the name.
    pub(super) fn accessed_member(&self) -> Option<&'a str> {
        let rest = self.text_after.strip_prefix('.')?;
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        (end > 0).then(|| &rest[..end])
    }

    fn is_called(&self) -> bool {
        self.text_after.starts_with('(') || self.char_before == Some('@')
    }
}

/// Names of Python's standard library that have a single source and are not common identifiers. Capitalized ones are
/// types and may appear bare.
const STDLIB_NAMES: [(&str, &str); 22] = [
    ("Any", "typing"),
    ("Callable", "collections.abc"),
    ("Counter", "collections"),
    ("Decimal", "decimal"),
    ("Enum", "enum"),
    ("Iterable", "collections.abc"),
    ("Iterator", "collections.abc"),
    ("NamedTuple", "typing"),
    ("Optional", "typing"),
    ("OrderedDict", "collections"),
    ("Path", "pathlib"),
    ("Protocol", "typing"),
    ("Union", "typing"),
    ("dataclass", "dataclasses"),
    ("defaultdict", "collections"),
    ("deque", "collections"),
    ("lru_cache", "functools"),
    ("namedtuple", "collections"),
    ("partial", "functools"),
    ("suppress", "contextlib"),
    ("timedelta", "datetime"),
    ("wraps", "functools"),
];

/// Modules that are used under their own name, with well-known members.
const STDLIB_MODULES: [(&str, &str); 37] = [
    ("argparse", "ArgumentParser ArgumentTypeError Namespace RawDescriptionHelpFormatter SUPPRESS"),
    ("ast", "NodeTransformer NodeVisitor dump literal_eval parse unparse walk"),
    (
        "asyncio",
        "CancelledError Event Lock Queue Semaphore StreamReader StreamWriter Task TimeoutError create_subprocess_exec create_task gather get_event_loop get_running_loop new_event_loop open_connection run sleep start_server subprocess to_thread wait wait_for",
    ),
    ("base64", "b32encode b64decode b64encode urlsafe_b64decode urlsafe_b64encode"),
    ("collections", "ChainMap Counter OrderedDict abc defaultdict deque namedtuple"),
    (
        "contextlib",
        "AsyncExitStack ExitStack asynccontextmanager closing contextmanager nullcontext redirect_stdout suppress",
    ),
    ("copy", "copy deepcopy"),
    ("csv", "DictReader DictWriter QUOTE_ALL QUOTE_MINIMAL reader writer"),
    ("dataclasses", "asdict astuple dataclass field fields replace"),
    ("datetime", "UTC date datetime time timedelta timezone"),
    ("decimal", "Decimal InvalidOperation ROUND_HALF_EVEN ROUND_HALF_UP getcontext localcontext"),
    ("enum", "Enum Flag IntEnum IntFlag StrEnum auto unique"),
    ("functools", "cache cached_property lru_cache partial reduce singledispatch total_ordering wraps"),
    ("glob", "escape glob iglob"),
    ("hashlib", "blake2b md5 new sha1 sha256 sha512"),
    ("io", "BufferedReader BytesIO StringIO TextIOWrapper UnsupportedOperation"),
    (
        "itertools",
        "accumulate chain combinations count cycle groupby islice permutations product repeat starmap takewhile tee zip_longest",
    ),
    ("json", "JSONDecodeError JSONEncoder dump dumps load loads"),
    (
        "logging",
        "CRITICAL DEBUG ERROR FileHandler Formatter Handler INFO Logger NullHandler StreamHandler WARNING basicConfig critical debug error exception getLogger info warning",
    ),
    (
        "math",
        "atan2 ceil cos degrees e exp factorial floor fsum gcd hypot inf isclose isfinite isinf isnan isqrt lcm log log10 log2 nan pi pow prod radians sin sqrt tan tau trunc",
    ),
    (
        "os",
        "PathLike chdir chmod close environ fsync getcwd getenv getpid kill linesep listdir makedirs mkdir name path pathsep remove rename replace rmdir scandir sep stat symlink unlink urandom utime walk",
    ),
    ("pathlib", "Path PosixPath PurePath PurePosixPath PureWindowsPath"),
    ("pytest", "approx exit fail fixture importorskip main mark param raises skip warns xfail"),
    ("random", "Random choice choices gauss randint random randrange sample seed shuffle uniform"),
    (
        "re",
        "ASCII DOTALL I IGNORECASE M MULTILINE Match Pattern VERBOSE compile error escape findall finditer fullmatch match search split sub subn",
    ),
    ("shutil", "copy copy2 copyfile copyfileobj copytree disk_usage make_archive move rmtree which"),
    ("sqlite3", "Connection Cursor DatabaseError Error IntegrityError OperationalError Row connect"),
    (
        "string",
        "Formatter Template ascii_letters ascii_lowercase ascii_uppercase digits hexdigits printable punctuation whitespace",
    ),
    (
        "subprocess",
        "CalledProcessError CompletedProcess DEVNULL PIPE Popen STDOUT TimeoutExpired check_call check_output run",
    ),
    (
        "sys",
        "argv byteorder exc_info executable exit getrecursionlimit getsizeof maxsize modules path platform setrecursionlimit stderr stdin stdout version version_info",
    ),
    (
        "tempfile",
        "NamedTemporaryFile SpooledTemporaryFile TemporaryDirectory TemporaryFile gettempdir mkdtemp mkstemp",
    ),
    ("textwrap", "dedent fill indent shorten wrap"),
    ("threading", "Barrier Condition Event Lock RLock Semaphore Thread Timer current_thread get_ident local"),
    (
        "time",
        "gmtime localtime mktime monotonic monotonic_ns perf_counter perf_counter_ns process_time sleep strftime strptime time time_ns",
    ),
    (
        "typing",
        "Any Callable ClassVar Dict Generic Iterable Iterator List Literal NamedTuple Optional Protocol Sequence Set TYPE_CHECKING Tuple TypeVar TypedDict Union cast overload",
    ),
    (
        "unittest",
        "IsolatedAsyncioTestCase TestCase TestSuite expectedFailure main mock skip skipIf skipUnless",
    ),
    ("uuid", "NAMESPACE_DNS NAMESPACE_URL UUID uuid1 uuid3 uuid4 uuid5"),
];

/// Returns the import line for a missing name used this way; `None` if the name could be anything else.
pub(super) fn stdlib_import_line(missing: &str, used: &NameUsage<'_>) -> Option<String> {
    let by_name = || {
        let (name, module) = STDLIB_NAMES.iter().find(|(name, _)| *name == missing)?;
        let is_type = name.starts_with(|c: char| c.is_ascii_uppercase());
        (is_type || used.is_called()).then(|| format!("from {module} import {name}"))
    };
    let by_member = || {
        let (module, members) = STDLIB_MODULES.iter().find(|(module, _)| *module == missing)?;
        let member = used.accessed_member()?;
        members.split(' ').any(|known| known == member).then(|| format!("import {module}"))
    };
    by_name().or_else(by_member)
}

#[cfg(test)]
mod tests {
    use super::{super::finding::parse_findings, *};

    /// Returns the import line for `name`, the missing name in a file that consists of `line`.
    fn import_line_for(line: &str, name: &str) -> Option<String> {
        let column = line.find(name).expect("stands there") + 1;
        let found = parse_findings(&format!("a.py:1:{column}: F821 Undefined name `{name}`\n"));
        stdlib_import_line(name, &NameUsage::from_finding(line, &found[0]))
    }

    #[test]
    fn module_is_imported_only_for_a_known_member() {
        for (line, name) in [
            ("time.sleep(1)", "time"),
            ("x = string.ascii_letters", "string"),
            ("copy.deepcopy(a)", "copy"),
            ("glob.glob('*')", "glob"),
            ("random.randint(1, 2)", "random"),
            ("    @pytest.fixture", "pytest"),
            ("print(f\"{json.dumps(a)}\")", "json"),
        ] {
            assert_eq!(import_line_for(line, name), Some(format!("import {name}")), "{line}");
        }
        for (line, name) in [
            ("time + 1", "time"),
            ("string.upper()", "string"),
            ("copy = copy", "copy"),
            ("glob(x)", "glob"),
            ("random()", "random"),
            ("datetime.now()", "datetime"),
            ("json", "json"),
            ("time .sleep(1)", "time"),
            ("self(os.", "os"),
        ] {
            assert_eq!(import_line_for(line, name), None, "{line}");
        }
    }

    #[test]
    fn name_is_imported_when_called_or_decorating_and_a_type_anywhere() {
        for (line, name, module) in [
            ("@dataclass", "dataclass", "dataclasses"),
            ("@lru_cache(maxsize=None)", "lru_cache", "functools"),
            ("d = defaultdict(list)", "defaultdict", "collections"),
            ("def f(a: Optional[int]): pass", "Optional", "typing"),
            ("class A(Enum):", "Enum", "enum"),
        ] {
            assert_eq!(import_line_for(line, name), Some(format!("from {module} import {name}")), "{line}");
        }
        for (line, name) in [
            ("return [field.upper() for f in fields]", "field"),
            ("field(default=1)", "field"),
            ("x = partial", "partial"),
            ("wraps + 1", "wraps"),
            ("frobnicate()", "frobnicate"),
        ] {
            assert_eq!(import_line_for(line, name), None, "{line}");
        }
    }

    #[test]
    fn columns_count_characters_and_invalid_positions_are_ignored() {
        let found =
            parse_findings("a.py:1:5: F821 Undefined name `os`\na.py:9:1: F821 Undefined name `os`\n");
        assert_eq!(
            stdlib_import_line("os", &NameUsage::from_finding("é = os.getcwd()\n", &found[0])).as_deref(),
            Some("import os")
        );
        assert_eq!(stdlib_import_line("os", &NameUsage::from_finding("é = os.getcwd()\n", &found[1])), None);
    }
}
