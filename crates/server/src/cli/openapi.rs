//! `posthorn openapi`: the API's document, from the program itself.

use std::io::Write as _;

/// Prints the document, indented.
pub(super) fn run() -> anyhow::Result<()> {
    let document = posthorn_api::openapi_json();
    writeln!(std::io::stdout().lock(), "{document}")?;
    Ok(())
}
