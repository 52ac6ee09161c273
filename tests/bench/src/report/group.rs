//! The groups of figures: what `--only` names, and the order they run in.

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
    /// The same at the PostgreSQL store, and beside a snapshot that is held
    DrainPostgres,
    /// What a store full of finished runs costs
    Finished,
    /// The same at the PostgreSQL store
    FinishedPostgres,
    /// What a person looks at first, over 100,000 tasks
    Overview,
    /// The same at the PostgreSQL store
    OverviewPostgres,
    /// A hundred live runs, each followed by ten
    Followers,
    /// The same at the PostgreSQL store
    FollowersPostgres,
    /// From submit to a waiting worker's hands
    Latency,
    /// Reading, verifying and folding a log
    Fold,
    /// Runs: cold start, turns, memory, crashes
    Turns,
    /// A worker that is killed, lease and all
    Workers,
    /// The price of the sandbox
    Sandbox,
    /// Snapshots of a repository of 50,000 files
    Snapshots,
    /// What late turns leave in the store
    Storage,
    /// The edit engine
    Edit,
    /// Prompts, and long conversations made shorter
    Engine,
    /// Searching source text, beside ripgrep
    Search,
}

impl FigureGroup {
    /// All groups, in the order they run: what needs a quiet machine first.
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

    /// Whether its figures are times: what else goes on would show in them. The others run last, while what
    /// the timed ones left is removed.
    pub(crate) const fn is_timed(self) -> bool {
        !matches!(self, Self::Storage)
    }

    /// Whether it is measured at a PostgreSQL server.
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

    /// The word.
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
