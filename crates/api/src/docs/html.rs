//! Text into HTML, safely.

/// A text as it may stand in HTML, between tags and in quoted attributes.
pub(crate) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            other => safe.push(other),
        }
    }
    safe
}

/// A description: paragraphs at blank lines, and `code` between backticks. Nothing else of Markdown is used.
pub(crate) fn prose(text: &str) -> String {
    text.split("\n\n")
        .map(|paragraph| ["<p>", inline(paragraph).as_str(), "</p>"].concat())
        .collect()
}

/// One paragraph's text.
pub(crate) fn inline(text: &str) -> String {
    let mut html = String::new();
    for (at, part) in escape(text).split('`').enumerate() {
        if at % 2 == 0 {
            html.push_str(part);
        } else {
            html.push_str("<code>");
            html.push_str(part);
            html.push_str("</code>");
        }
    }
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_in_a_text_stays_text() {
        assert_eq!(
            escape("<a href=\"x\" id='y'>&"),
            "&lt;a href=&quot;x&quot; id=&#39;y&#39;&gt;&amp;"
        );
        assert_eq!(inline("a `<b>` c"), "a <code>&lt;b&gt;</code> c");
    }

    #[test]
    fn blank_lines_part_paragraphs() {
        assert_eq!(prose("a\n\nb"), "<p>a</p><p>b</p>");
    }
}
