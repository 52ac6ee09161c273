//! The layout of the screen. Pure; used by the state for page sizes and by the view for drawing.

/// Minimum number of columns of a usable screen.
pub(super) const COLUMNS_MIN: u16 = 40;
/// Minimum number of rows of a usable screen.
pub(super) const ROWS_MIN: u16 = 10;
/// Maximum rows of the timeline: a taller screen gives more rows to the pane.
const TIMELINE_ROWS_MAX: u16 = 14;

/// The rows of a screen, from the top: the header, the timeline with its heading, the names of the panes, the
/// pane, and a line for messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ScreenLayout {
    pub(super) columns: u16,
    pub(super) rows: u16,
    /// Turns visible in the timeline.
    pub(super) timeline: u16,
    /// Rows of the pane.
    pub(super) pane: u16,
}

impl ScreenLayout {
    /// Computes the layout; if `zoomed`, the timeline has only the row of the current turn.
    pub(super) fn for_size(columns: u16, rows: u16, zoomed: bool) -> Self {
        // Header, heading of the timeline, names of the panes, messages.
        let room = rows.saturating_sub(4);
        let timeline = if zoomed { 1 } else { (room / 3).clamp(1, TIMELINE_ROWS_MAX) };
        Self { columns, rows, timeline, pane: room.saturating_sub(timeline) }
    }

    /// Whether the screen is large enough to draw.
    pub(super) const fn is_large_enough(self) -> bool {
        self.columns >= COLUMNS_MIN && self.rows >= ROWS_MIN
    }
}
