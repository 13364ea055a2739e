//! The frame of every page: head, styles, navigation.

use super::html::escape;

/// A whole page. `navigation` and `main` are HTML; `title` is text.
pub(crate) fn page(title: &str, navigation: &str, main: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <nav aria-label=\"Contents\"><a class=\"name\" href=\"/docs\">Posthorn</a>{navigation}</nav>\n\
         <main>{main}</main>\n</body>\n</html>\n",
        title = escape(title),
    )
}

const STYLE: &str = include_str!("page.css");
