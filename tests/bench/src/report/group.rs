//! The groups of figures: the values of `--only`, in the order they run.

/// A group of figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum FigureGroup {
    /// Appends to the SQLite store
    Sqlite,
    /// Appends to the PostgreSQL store
    Postgres,
    /// Appends over HTTP
    Http,
    /// Submitting and finishing tasks that do nothing
    Drain,
    /// The same on PostgreSQL, and during a held snapshot
    DrainPostgres,
    /// The cost of a store full of finished runs
    Finished,
    /// The same on PostgreSQL
    FinishedPostgres,
    /// The overview page, over 100,000 tasks
    Overview,
    /// The same on PostgreSQL
    OverviewPostgres,
    /// A hundred live runs with ten followers each
    Followers,
    /// The same on PostgreSQL
    FollowersPostgres,
    /// From submit to a waiting worker
    Latency,
    /// Reading, verifying and folding a log
    Fold,
    /// Runs: cold start, turns, memory, crashes
    Turns,
    /// A killed worker and its leases
    Workers,
    /// The cost of the sandbox
    Sandbox,
    /// Snapshots of a repository of 50,000 files
    Snapshots,
    /// Storage of late turns
    Storage,
    /// The edit engine
    Edit,
    /// Prompts, and compaction of long conversations
    Engine,
    /// Searching source text, compared with ripgrep
    Search,
}

impl FigureGroup {
    /// All groups, in the order they run: those that need a quiet machine come first.
    pub(crate) const ALL: [Self; 21] = [
        Self::Latency,
        Self::Turns,
        Self::Workers,
        Self::Sandbox,
        Self::Snapshots,
        Self::Sqlite,
        Self::Postgres,
        Self::Http,
        Self::Drain,
        Self::DrainPostgres,
        Self::Finished,
        Self::FinishedPostgres,
        Self::Overview,
        Self::OverviewPostgres,
        Self::Followers,
        Self::FollowersPostgres,
        Self::Fold,
        Self::Storage,
        Self::Edit,
        Self::Engine,
        Self::Search,
    ];

    /// Returns whether its figures are times, which other work would distort. The other groups run last,
    /// while the files of the timed ones are removed.
    pub(crate) const fn is_timed(self) -> bool {
        !matches!(self, Self::Storage)
    }

    /// Returns whether it needs a PostgreSQL server.
    pub(crate) const fn needs_postgres(self) -> bool {
        matches!(
            self,
            Self::Postgres
                | Self::DrainPostgres
                | Self::FinishedPostgres
                | Self::OverviewPostgres
                | Self::FollowersPostgres
        )
    }

    /// Returns the name used on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::Http => "http",
            Self::Drain => "drain",
            Self::DrainPostgres => "drain-postgres",
            Self::Finished => "finished",
            Self::FinishedPostgres => "finished-postgres",
            Self::Overview => "overview",
            Self::OverviewPostgres => "overview-postgres",
            Self::Followers => "followers",
            Self::FollowersPostgres => "followers-postgres",
            Self::Latency => "latency",
            Self::Fold => "fold",
            Self::Turns => "turns",
            Self::Workers => "workers",
            Self::Sandbox => "sandbox",
            Self::Snapshots => "snapshots",
            Self::Storage => "storage",
            Self::Edit => "edit",
            Self::Engine => "engine",
            Self::Search => "search",
        }
    }
}
