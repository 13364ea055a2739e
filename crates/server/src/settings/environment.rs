//! The process's environment, read here and nowhere else.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

/// A copy of the environment, taken once. Empty variables count as unset: compose files and unit files
/// write `NAME=` for "not given".
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment {
    variables: BTreeMap<String, OsString>,
}

impl Environment {
    /// The environment of this process.
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one place where the environment is read"
    )]
    pub(crate) fn of_this_process() -> Self {
        Self::of(
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value))),
        )
    }

    /// An environment of these variables.
    pub(crate) fn of<V: Into<OsString>>(variables: impl IntoIterator<Item = (String, V)>) -> Self {
        let variables = variables
            .into_iter()
            .map(|(name, value)| (name, value.into()));
        Self {
            variables: variables.filter(|(_, value)| !value.is_empty()).collect(),
        }
    }

    /// Names and values of all variables that are set.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &OsString)> {
        self.variables
            .iter()
            .map(|(name, value)| (name.as_str(), value))
    }

    /// The folders of `PATH`, in order.
    pub(crate) fn path(&self) -> Vec<PathBuf> {
        self.variables
            .get("PATH")
            .map(|path| std::env::split_paths(path).collect())
            .unwrap_or_default()
    }

    /// Where a program of this user keeps data: `XDG_DATA_HOME`, else `~/.local/share`.
    pub(crate) fn data_home(&self) -> Option<PathBuf> {
        let given = self
            .variables
            .get("XDG_DATA_HOME")
            .map(PathBuf::from)
            .filter(|path| path.is_absolute());
        given.or_else(|| {
            self.variables
                .get("HOME")
                .map(|home| PathBuf::from(home).join(".local/share"))
        })
    }
}
