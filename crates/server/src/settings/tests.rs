//! What settings are read as, and what is refused.

use std::path::PathBuf;

use posthorn_egress::NameServers;
use secrecy::ExposeSecret as _;

use super::environment::Environment;
use super::*;

/// A managed database, so that a case need only say what it is about.
const BASE: [(&str, &str); 1] = [("POSTHORN_DATA_DIR", "/srv/posthorn")];

fn environment(variables: &[(&str, &str)]) -> Environment {
    Environment::of(
        variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), *value)),
    )
}

fn read(variables: &[(&str, &str)]) -> Result<Settings, SettingsError> {
    Settings::read(&Flags::default(), &environment(variables))
}

fn read_with_base(variables: &[(&str, &str)]) -> Result<Settings, SettingsError> {
    let all: Vec<(&str, &str)> = BASE.iter().chain(variables).copied().collect();
    read(&all)
}

/// The one problem that these variables have.
fn problem(variables: &[(&str, &str)]) -> String {
    let mut problems = read(variables).err().expect("a problem").problems;
    assert_eq!(problems.len(), 1, "{problems:?}");
    problems.remove(0).to_string()
}

/// A file of settings that is removed with the value.
struct File(PathBuf);

impl File {
    fn of(name: &str, text: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("posthorn-settings-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_file_of_roots_that_cannot_be_used_is_refused_at_start() {
    let empty = File::of("empty.pem", "");
    let key = File::of(
        "key.pem",
        "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
    );
    let broken = File::of(
        "broken.pem",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    );
    for (path, why) in [
        ("/nowhere/ca.pem", "cannot be read"),
        ("/proc", "cannot be read"),
        ("/dev/zero", "has more than"),
        (empty.path(), "hold no certificate"),
        (key.path(), "hold no certificate"),
        (broken.path(), "cannot be used"),
    ] {
        let variables = [BASE[0], ("POSTHORN_EGRESS_CA", path)];
        let said = problem(&variables);
        assert!(
            said.starts_with(&format!("POSTHORN_EGRESS_CA: `{path}`")),
            "{said}"
        );
        assert!(said.contains(why), "{said}");
    }
}

#[test]
fn a_forward_proxy_that_is_none_is_refused_without_its_text() {
    let name = "POSTHORN_EGRESS_PROXY";
    for text in [
        "socks5://u:canary@host:1080",
        "http://u:canary@host:0",
        "canary",
    ] {
        let said = problem(&[BASE[0], (name, text)]);
        assert!(said.starts_with(name) && !said.contains("canary"), "{said}");
    }
    let file = File::of("proxy", "http://u:canary@proxy.example:3128\n");
    let read = read_with_base(&[("POSTHORN_EGRESS_PROXY_FILE", file.path())]).unwrap();
    assert!(read.egress_options.proxy.is_some());
}

#[test]
fn name_servers_are_addresses_with_or_without_a_port() {
    let name = "POSTHORN_EGRESS_DNS";
    let servers =
        |text| read_with_base(&[(name, text)]).map(|read| read.egress_options.name_servers);
    assert_eq!(
        servers("10.0.0.53, 10.0.0.53:5353, fd00::53, [fd00::53]:5353").unwrap(),
        NameServers::Only(
            [
                "10.0.0.53:53",
                "10.0.0.53:5353",
                "[fd00::53]:53",
                "[fd00::53]:5353"
            ]
            .map(|server| server.parse().unwrap())
            .into()
        )
    );
    assert_eq!(
        read_with_base(&[]).unwrap().egress_options.name_servers,
        NameServers::System
    );
    let many = ["10.0.0.53"; 9].join(",");
    for wrong in ["ns.example", "10.0.0.53:0", "10.0.0.53:dns", ",", &many] {
        let said = problem(&[BASE[0], (name, wrong)]);
        assert!(said.starts_with(name), "{said}");
    }
}

#[test]
fn https_alone_is_wanted_only_where_somebody_says_so() {
    let refuses_http = |variables: &[_]| {
        let policy = read_with_base(variables).unwrap().egress;
        policy
            .allows_scheme(posthorn_domain::url::Scheme::Http)
            .is_err()
    };
    assert!(!refuses_http(&[]));
    assert!(!refuses_http(&[("POSTHORN_HTTPS_ONLY", "off")]));
    assert!(refuses_http(&[("POSTHORN_HTTPS_ONLY", "on")]));
}

#[test]
fn without_settings_the_server_is_on_loopback_and_does_everything() {
    let settings = read_with_base(&[]).unwrap();
    assert_eq!(settings.listen.to_string(), "127.0.0.1:8400");
    assert_eq!(settings.roles, Role::ALL.into());
    assert_eq!(settings.migrate, Migrate::On);
    assert!(settings.public_url.is_none());
}

#[test]
fn the_environment_wins_over_the_file_and_flags_win_over_both() {
    let file = File::of(
        "layers",
        "listen = '127.0.0.1:1'\nlog = 'warn'\nroles = ['api']\ndata_dir = '/srv/a'\n",
    );
    let variables = [
        ("POSTHORN_CONFIG", file.path()),
        ("POSTHORN_LISTEN", "127.0.0.1:2"),
        ("POSTHORN_LOG", "error"),
    ];
    let flags = Flags {
        listen: Some("127.0.0.1:3".to_owned()),
        ..Flags::default()
    };
    let settings = Settings::read(&flags, &environment(&variables)).unwrap();
    assert_eq!(settings.listen.to_string(), "127.0.0.1:3");
    assert_eq!(settings.log.filter, "error");
    assert_eq!(settings.roles, [Role::Api].into());
}

#[test]
fn every_combination_of_roles_is_taken_that_makes_a_whole() {
    let with = |roles| read_with_base(&[("POSTHORN_ROLES", roles)]);
    for roles in [
        "api",
        "worker",
        "api,worker",
        "api,console",
        "api,worker,console",
    ] {
        assert!(with(roles).is_ok(), "{roles}");
    }
    for roles in ["console", "worker,console", "worker,sender"] {
        assert!(with(roles).is_err(), "{roles}");
    }
}

#[test]
fn port_alone_means_every_address() {
    let settings = read_with_base(&[
        ("PORT", "9000"),
        ("POSTHORN_PUBLIC_URL", "https://hooks.example.com"),
    ])
    .unwrap();
    assert_eq!(settings.listen.to_string(), "0.0.0.0:9000");
}

#[test]
fn an_empty_variable_is_not_given() {
    assert!(read_with_base(&[("DATABASE_URL", ""), ("POSTHORN_PUBLIC_URL", "")]).is_ok());
}

#[test]
fn what_is_logged_is_levels_and_parts_with_levels() {
    for good in [
        "info",
        "WARN",
        "off",
        "info,posthorn_worker=debug",
        "posthorn_store=off, error",
    ] {
        assert!(read_with_base(&[("POSTHORN_LOG", good)]).is_ok(), "{good}");
    }
    for (bad, word) in [
        ("loud", "loud"),
        ("info,posthorn_worker", "posthorn_worker"),
        ("info=loud", ""),
    ] {
        let error = read_with_base(&[("POSTHORN_LOG", bad)])
            .err()
            .unwrap()
            .to_string();
        assert!(
            error.contains("POSTHORN_LOG") && error.contains(word),
            "{error}"
        );
    }
}

/// Refused when settings are read, so that looking at them says what starting would; and nothing of it is shown (INV-10).
#[test]
fn a_database_that_is_none_is_refused_and_not_shown() {
    for url in [
        "mysql://user:canary@host/database",
        "nonsense",
        "canary",
        "postgres://user:canary@[host/database",
    ] {
        let error = read_with_base(&[("DATABASE_URL", url)])
            .err()
            .unwrap()
            .to_string();
        assert!(
            error.contains("DATABASE_URL") && !error.contains("canary"),
            "{error}"
        );
    }
}

#[test]
fn contradictions_name_both() {
    for (variables, names) in [
        (
            vec![
                ("DATABASE_URL", "postgres://a@b/c"),
                ("POSTHORN_DATA_DIR", "/d"),
            ],
            ["DATABASE_URL", "POSTHORN_DATA_DIR"],
        ),
        (
            vec![
                ("DATABASE_URL", "postgres://a@b/c"),
                ("POSTHORN_MANAGED", "on"),
            ],
            ["DATABASE_URL", "POSTHORN_MANAGED"],
        ),
        (
            vec![
                ("POSTHORN_DATA_DIR", "/d"),
                ("PORT", "1"),
                ("POSTHORN_LISTEN", "127.0.0.1:2"),
            ],
            ["PORT", "POSTHORN_LISTEN"],
        ),
        (
            vec![
                ("DATABASE_URL", "postgres://a@b/c"),
                ("POSTHORN_DATABASE_URL", "postgres://a@b/d"),
            ],
            ["DATABASE_URL", "POSTHORN_DATABASE_URL"],
        ),
        (
            vec![("POSTHORN_DATA_DIR", "/d"), ("POSTHORN_MANAGED", "off")],
            ["POSTHORN_DATA_DIR", "managed"],
        ),
        (
            vec![
                ("POSTHORN_DATA_DIR", "/d"),
                ("POSTHORN_METRICS_LISTEN", "127.0.0.1:8400"),
            ],
            ["POSTHORN_METRICS_LISTEN", "POSTHORN_LISTEN"],
        ),
        (
            vec![
                ("POSTHORN_DATA_DIR", "/d"),
                ("POSTHORN_MIGRATE_DATABASE_URL", "postgres://a@b/c"),
            ],
            ["POSTHORN_MIGRATE_DATABASE_URL", "DATABASE_URL"],
        ),
    ] {
        let problem = problem(&variables);
        assert!(
            names.iter().all(|name| problem.contains(name)),
            "{names:?} in {problem}"
        );
    }
}

#[test]
fn without_a_database_both_ways_are_named() {
    let problem = problem(&[]);
    assert!(
        problem.contains("DATABASE_URL") && problem.contains("POSTHORN_DATA_DIR"),
        "{problem}"
    );
}

#[test]
fn an_unknown_variable_is_refused_by_name() {
    assert_eq!(
        problem(&[BASE[0], ("POSTHORN_LISTEM", "127.0.0.1:1")]),
        "there is no setting POSTHORN_LISTEM"
    );
    assert_eq!(
        problem(&[BASE[0], ("POSTHORN_LISTEN_FILE", "/x")]),
        "there is no setting POSTHORN_LISTEN_FILE"
    );
    assert_eq!(
        problem(&[BASE[0], ("POSTHORN_log", "warn")]),
        "there is no setting POSTHORN_log"
    );
}

#[test]
fn an_unknown_key_of_the_file_is_refused_by_name() {
    let file = File::of("unknown", "data_dir = '/srv/a'\nlissten = 'x'\n");
    let problem = problem(&[("POSTHORN_CONFIG", file.path())]);
    assert!(
        problem.contains("`lissten`") && problem.contains(file.path()),
        "{problem}"
    );
}

#[test]
fn a_file_that_does_not_parse_is_named_with_its_line_and_without_its_text() {
    let file = File::of("broken", "data_dir = '/srv/a'\nmaster_keys = 'k1:hunter2\n");
    let problem = read(&[BASE[0], ("POSTHORN_CONFIG", file.path())])
        .err()
        .unwrap()
        .to_string();
    assert!(
        problem.contains("line 2") && !problem.contains("hunter2"),
        "{problem}"
    );
}

#[test]
fn every_problem_is_told_at_once() {
    let error = read_with_base(&[
        ("POSTHORN_LOG_FORMAT", "xml"),
        ("POSTHORN_MIGRATE", "maybe"),
    ])
    .err()
    .unwrap();
    assert_eq!(error.problems.len(), 2, "{error}");
}

#[test]
fn a_listener_beyond_loopback_needs_a_public_url() {
    let problem = problem(&[BASE[0], ("POSTHORN_LISTEN", "0.0.0.0:8400")]);
    assert!(
        problem.contains("POSTHORN_LISTEN") && problem.contains("POSTHORN_PUBLIC_URL"),
        "{problem}"
    );
}

#[test]
fn a_public_url_is_an_https_origin_or_on_loopback() {
    for good in [
        "https://hooks.example.com",
        "https://hooks.example.com:8443/",
        "http://127.0.0.1:8400",
        "http://localhost:1",
    ] {
        assert!(
            read_with_base(&[("POSTHORN_PUBLIC_URL", good)]).is_ok(),
            "{good}"
        );
    }
    for bad in [
        "http://hooks.example.com",
        "https://a.b/path",
        "https://u:p@a.b",
        "ftp://a.b",
        "a.b",
        "https://a.b/?q",
    ] {
        assert!(
            problem(&[BASE[0], ("POSTHORN_PUBLIC_URL", bad)]).contains("POSTHORN_PUBLIC_URL"),
            "{bad}"
        );
    }
}

#[test]
fn a_secret_may_come_from_a_file() {
    let file = File::of("secret", "postgres://a:b@c/d\n");
    let settings = read(&[("DATABASE_URL_FILE", file.path())]).unwrap();
    let DatabaseSettings::Given { url, .. } = settings.database else {
        panic!("not given")
    };
    assert_eq!(url.expose_secret(), "postgres://a:b@c/d");
}

#[test]
fn a_secret_is_in_no_problem() {
    let variables = [
        ("DATABASE_URL", "postgres://a:hunter2@c/d"),
        ("POSTHORN_DATABASE_URL", "postgres://a:hunter3@c/d"),
    ];
    assert!(!problem(&variables).contains("hunter"));
}

#[test]
fn serving_a_given_database_needs_master_keys() {
    let without = read(&[("DATABASE_URL", "postgres://a@b/c")]).unwrap();
    assert!(
        without
            .ready_to_serve()
            .err()
            .unwrap()
            .to_string()
            .contains("POSTHORN_MASTER_KEYS")
    );
    let with = read(&[
        ("DATABASE_URL", "postgres://a@b/c"),
        (
            "POSTHORN_MASTER_KEYS",
            "k1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
        ),
    ])
    .unwrap();
    assert!(with.ready_to_serve().is_ok());
}

/// INV-10: told with every other fault, before anything is touched, and without its text.
#[test]
fn master_keys_that_are_none_are_refused_and_not_shown() {
    for ring in ["hunter2", "k1:hunter2", "k1:"] {
        let problem = read(&[
            BASE[0],
            ("POSTHORN_MASTER_KEYS", ring),
            ("POSTHORN_LISTEN", "nowhere"),
        ])
        .err()
        .unwrap()
        .to_string();
        let named = ["POSTHORN_MASTER_KEYS", "POSTHORN_LISTEN"];
        assert!(
            named.iter().all(|name| problem.contains(name)) && !problem.contains("hunter2"),
            "{ring}: {problem}"
        );
    }
}

#[test]
fn a_managed_database_without_a_folder_has_a_default_or_says_that_it_has_none() {
    let flags = Flags {
        managed: true,
        ..Flags::default()
    };
    let read = Settings::read(&flags, &environment(&[("HOME", "/home/ada")])).unwrap();
    let DatabaseSettings::Managed { data_dir, .. } = read.database else {
        panic!("not managed")
    };
    assert!(data_dir.is_absolute());
}

#[test]
fn sign_up_is_closed_and_nothing_else() {
    assert!(read_with_base(&[("POSTHORN_SIGNUP", "closed")]).is_ok());
    assert!(problem(&[BASE[0], ("POSTHORN_SIGNUP", "open")]).contains("not offered"));
}

#[test]
fn what_egress_allows_is_parsed_at_start() {
    assert!(
        read_with_base(&[("POSTHORN_EGRESS_ALLOW", "10.0.0.0/8:8080, internal.example")]).is_ok()
    );
    assert!(
        problem(&[BASE[0], ("POSTHORN_EGRESS_ALLOW", "10.0.0.0/99")])
            .contains("POSTHORN_EGRESS_ALLOW")
    );
}

#[test]
fn days_that_things_are_kept_are_from_1_to_365() {
    let read = read_with_base(&[
        ("POSTHORN_RETENTION_DAYS", "7"),
        ("POSTHORN_DEAD_LETTER_RETENTION_DAYS", "365"),
    ])
    .unwrap();
    let days = (
        read.retention.events.get(),
        read.retention.dead_letters.get(),
    );
    assert_eq!(days, (7, 365));
    for wrong in ["0", "366", "a week"] {
        let problem = problem(&[BASE[0], ("POSTHORN_RETENTION_DAYS", wrong)]);
        assert!(problem.contains("POSTHORN_RETENTION_DAYS"), "{problem}");
    }
}

/// What the page for operators says.
#[test]
fn events_are_kept_for_30_days_and_dead_letters_for_90_unless_somebody_decides_otherwise() {
    let retention = read_with_base(&[]).unwrap().retention;
    let days = (retention.events.get(), retention.dead_letters.get());
    assert_eq!(days, (30, 90));
}

#[test]
fn a_pause_before_the_end_is_a_number_of_seconds_up_to_five_minutes() {
    let name = "POSTHORN_SHUTDOWN_PAUSE_SECONDS";
    let pause = |text| read_with_base(&[(name, text)]).map(|read| read.shutdown_pause);
    assert_eq!(read_with_base(&[]).unwrap().shutdown_pause, Duration::ZERO);
    assert_eq!(pause("0").unwrap(), Duration::ZERO);
    assert_eq!(pause("300").unwrap(), Duration::from_mins(5));
    for wrong in ["301", "-1", "1.5", "5s"] {
        let said = pause(wrong).unwrap_err().to_string();
        assert!(said.contains(name) && said.contains("300"), "{said}");
    }
}

#[test]
fn every_setting_has_a_row_in_the_page_for_operators_and_no_other_has() {
    let page = include_str!("../../../../docs/settings.md");
    let rows = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let known: Vec<&str> = layers::KNOWN.iter().map(|known| known.key).collect();
    assert_eq!(rows.collect::<Vec<_>>(), known);
}
