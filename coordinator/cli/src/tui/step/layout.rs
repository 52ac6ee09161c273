//! How a screen is divided. Pure; the model needs it to know how far a page goes, the view to draw.

/// Below this a screen cannot be read.
pub(super) const COLUMNS_MIN: u16 = 40;
/// As above, in rows.
pub(super) const ROWS_MIN: u16 = 10;
/// Most rows of the timeline: a taller screen belongs to the pane.
const TIMELINE_ROWS_MAX: u16 = 14;

/// Rows of a screen, from the top: the header, the timeline with its heading, the names of the panes, the
/// pane, a line for messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ScreenLayout {
    /// Columns of the screen.
    pub(super) columns: u16,
    /// Rows of the screen.
    pub(super) rows: u16,
    /// Turns that the timeline shows.
    pub(super) timeline: u16,
    /// Rows of the pane.
    pub(super) pane: u16,
}

impl ScreenLayout {
    /// The layout of a screen; `zoomed`, the pane has all but the row of its own turn.
    pub(super) fn for_size(columns: u16, rows: u16, zoomed: bool) -> Self {
        // Header, heading of the timeline, names of the panes, messages.
        let room = rows.saturating_sub(4);
        let timeline = if zoomed { 1 } else { (room / 3).clamp(1, TIMELINE_ROWS_MAX) };
        Self { columns, rows, timeline, pane: room.saturating_sub(timeline) }
    }

    /// Whether anything can be shown.
    pub(super) const fn is_large_enough(self) -> bool {
        self.columns >= COLUMNS_MIN && self.rows >= ROWS_MIN
    }
}
