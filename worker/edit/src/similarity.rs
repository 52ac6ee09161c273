//! Similarity of lines, and alignment of the lines of two texts.

/// Returns the similarity of two lines, 0 to 1.
pub(super) fn line_similarity(a: &str, b: &str) -> f64 {
    if a == b { 1.0 } else { strsim::normalized_levenshtein(a, b) }
}

/// Minimum similarity for two lines to count as the same line before and after a change.
pub(super) const SAME_LINE_MIN: f64 = 0.5;

/// Returns for each line of the search the corresponding line of the window.
pub(super) fn align_lines(said: &[String], there: &[String]) -> Vec<Option<usize>> {
    let (n, m) = (said.len(), there.len());
    let width = m + 1;
    let similar: Vec<f64> =
        said.iter().flat_map(|a| there.iter().map(move |b| line_similarity(a, b))).collect();
    let value = |i: usize, j: usize| {
        let s = similar[i * m + j];
        if s >= SAME_LINE_MIN { s * s + 0.01 } else { -1.0 }
    };
    let mut best = vec![0.0f64; (n + 1) * width];
    for i in (0..n).rev() {
        for j in (0..m).rev() {
            let skip = best[(i + 1) * width + j].max(best[i * width + j + 1]);
            best[i * width + j] = skip.max(best[(i + 1) * width + j + 1] + value(i, j));
        }
    }
    let mut out = vec![None; n];
    let (mut i, mut j) = (0, 0);
    while i < n && j < m {
        let here = best[i * width + j];
        let pair = best[(i + 1) * width + j + 1] + value(i, j);
        if value(i, j) > 0.0 && (here - pair).abs() < 1e-9 {
            out[i] = Some(j);
            i += 1;
            j += 1;
        } else if (here - best[(i + 1) * width + j]).abs() < 1e-9 {
            i += 1;
        } else {
            j += 1;
        }
    }
    out
}
