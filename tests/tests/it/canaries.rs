//! Canaries: secrets of every kind are planted, all goes well and wrong while the program logs at the level trace, and no
//! log line, metric or error body holds one of them (INV-10).

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use posthorn_tests::authority::{Authority, self_signed_server};
use posthorn_tests::environment;
use posthorn_tests::name_server::{NameAnswer, NameServer};
use posthorn_tests::program::{Answer, At, Client, Installation, submission};
use posthorn_tests::proxy::{Proxy, Way};
use posthorn_tests::receiver::http2::{Http2Receiver, Http2Reply, code};
use posthorn_tests::receiver::{Receiver, Reply};
use posthorn_tests::wait::{pause, until};
use serde_json::{Value, json};

use crate::stage::{AMPLE, Stage};

/// What is planted, each with the spellings that it could be told in.
struct Canaries(Vec<(&'static str, Vec<String>)>);

impl Canaries {
    /// A word that stands nowhere else.
    fn plant(&mut self, what: &'static str) -> String {
        let word = format!(
            "canary{}x{}",
            self.0.len(),
            environment::unique().replace('_', "x")
        );
        let hex: Vec<String> = word.bytes().map(|byte| format!("{byte:02x}")).collect();
        self.0.push((
            what,
            vec![word.clone(), hex.concat(), STANDARD.encode(&word)],
        ));
        word
    }

    /// A secret that was made elsewhere.
    fn known(&mut self, what: &'static str, spellings: &[&str]) {
        let spellings = spellings.iter().map(|text| (*text).to_owned()).collect();
        self.0.push((what, spellings));
    }

    /// Fails where one of them stands in a text, and shows the line.
    fn assert_absent(&self, place: &str, text: &str) {
        for (what, spellings) in &self.0 {
            for spelling in spellings {
                let line = text.lines().find(|line| line.contains(spelling.as_str()));
                assert_eq!(line, None, "{place} tells the {what} {spelling}");
            }
        }
    }
}

/// Everything that the test stands on.
struct Cage {
    stage: Stage,
    canaries: Canaries,
    database: Proxy,
    /// Bodies of answers that were refusals.
    refusals: Vec<Answer>,
    url: String,
    header: String,
    payload: String,
    cookie: String,
    key: String,
    secret: String,
}

impl Cage {
    async fn set(authority: &Authority, names: &NameServer) -> Self {
        let mut canaries = Canaries(Vec::new());
        let installation = Installation::trusting(&authority.pem()).await;
        let database = installation.proxy().await;
        let word = format!("canary{}", environment::unique());
        let (url, password) = installation.url_through(&database, &word);
        canaries.known("database's password", &[&password]);
        let mistyped = canaries.plant("value of a parameter that the database does not know");
        let joint = if url.contains('?') { '&' } else { '?' };
        let node = installation
            .serve_told(&[
                ("DATABASE_URL", &format!("{url}{joint}pasword={mistyped}")),
                ("POSTHORN_EGRESS_DNS", &names.address().to_string()),
                ("POSTHORN_LOG", "trace"),
            ])
            .await;
        let stage = Stage::around(installation, node).await;
        let master = stage.installation.master_keys().to_owned();
        let sealing = master.split_once(':').map_or("", |(_, key)| key);
        canaries.known("master key", &[sealing]);
        canaries.known(
            "API key",
            &[stage.api.key(), &stage.api.key()["ph_live_".len()..]],
        );
        let raw = format!("{:0<32}", canaries.plant("signing secret"));
        let secret = STANDARD.encode(raw);
        canaries.known("signing secret", &[&secret]);
        Self {
            url: canaries.plant("query of a URL"),
            header: canaries.plant("header's value"),
            payload: canaries.plant("payload"),
            cookie: canaries.plant("receiver's cookie"),
            key: canaries.plant("idempotency key"),
            secret: format!("whsec_{secret}"),
            stage,
            canaries,
            database,
            refusals: Vec::new(),
        }
    }

    /// An endpoint of one event type, with every secret that an endpoint has.
    async fn endpoint(&self, event_type: &str, origin: &str) {
        let (secret, header) = (&self.secret, &self.header);
        let fields = json!({
            "url": format!("{origin}/{event_type}?token={}", self.url),
            "event_types": [event_type],
            "headers": {"x-auth": header},
            "secret": secret,
            "signing": {"compat": {"kind": "github", "header": "x-hub-signature-256", "secret": header}},
            "retry_policy": {"kind": "fixed", "delay_ms": 100, "max_attempts": 1},
        });
        self.stage.api.endpoint(&fields).await;
    }

    /// Submits the payload, and waits for the end of its delivery.
    async fn deliver(&self, event_type: &str, state: &str) -> Value {
        let payload = json!({"card": self.payload}).to_string();
        let id = self.stage.api.submit(event_type, payload.as_bytes()).await;
        self.stage.delivery(&id, state).await
    }

    /// Something that must be refused, by the API or by the database behind it.
    fn refused(&mut self, answer: Answer) {
        assert!(answer.status >= 400, "{}", answer.status);
        self.refusals.push(answer);
    }
}

/// INV-10; G19.
#[tokio::test]
async fn no_log_line_metric_or_error_body_tells_a_secret_whatever_goes_wrong() {
    let authority = Authority::new();
    let names = NameServer::start(|_, _, _| NameAnswer::Unknown)
        .await
        .unwrap();
    let mut cage = Cage::set(&authority, &names).await;
    deliveries_end_in_every_way(&cage, &authority).await;
    requests_are_bad(&mut cage).await;
    the_database_refuses_rows(&mut cage).await;
    the_database_is_slow_and_away(&mut cage).await;

    let metrics = cage.stage.node.client("").get("/metrics").await;
    let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
    assert!(metrics.contains("posthorn_attempts_total"), "{metrics}");
    cage.canaries.assert_absent("/metrics", &metrics);
    for answer in &cage.refusals {
        let told = format!(
            "{:?}\n{}",
            answer.headers,
            String::from_utf8_lossy(&answer.body)
        );
        cage.canaries.assert_absent("an answer", &told);
    }
    let mut node = cage.stage.node;
    node.ask_to_end();
    node.ended(Duration::from_mins(1)).await;
    let log = node.log();
    assert!(log.matches("TRACE").count() > 100, "the level is not trace");
    cage.canaries.assert_absent("the log", &log);
}

async fn deliveries_end_in_every_way(cage: &Cage, authority: &Authority) {
    let plain = &cage.stage.receiver;
    let origin = format!("http://{}", plain.address());
    cage.endpoint("ok", &origin).await;
    cage.deliver("ok", "delivered").await;
    let request = &plain.requests()[0];
    // What is looked for went out.
    assert_eq!(request.header("x-auth"), Some(cage.header.as_str()));
    assert!(request.target().contains(&cage.url), "{}", request.target());
    assert!(String::from_utf8_lossy(&request.body).contains(&cage.payload));

    let cookie = format!("session={}", cage.cookie);
    let failing = Reply::status(500).header("set-cookie", &cookie);
    let failing = failing.body(cage.cookie.clone());
    plain.script("/bad", failing);
    cage.endpoint("bad", &origin).await;
    let dead = cage.deliver("bad", "dead").await;
    assert_eq!(dead.text("/last_attempt/error/kind"), "status");

    let http2 = Http2Receiver::start(&authority.server()).await.unwrap();
    http2.script([Http2Reply::status(204)]);
    cage.endpoint("h2", &format!("https://{}", http2.address()))
        .await;
    cage.deliver("h2", "delivered").await;
    http2.script([Http2Reply::reset(code::INTERNAL_ERROR)]);
    cage.deliver("h2", "dead").await;

    let unknown = Receiver::start_tls(self_signed_server()).await.unwrap();
    cage.endpoint("tls", &format!("https://{}", unknown.address()))
        .await;
    let gone = Receiver::start().await.unwrap();
    cage.endpoint("connect", &format!("http://{}", gone.address()))
        .await;
    drop(gone);
    cage.endpoint("dns", "http://nobody.test").await;
    cage.endpoint(
        "refused_target",
        &format!("http://localhost:{}", cage.stage.node.address().port()),
    )
    .await;
    for kind in ["tls", "connect", "dns", "refused_target"] {
        let dead = cage.deliver(kind, "dead").await;
        assert_eq!(dead.text("/last_attempt/error/kind"), kind);
    }
}

async fn requests_are_bad(cage: &mut Cage) {
    let api = cage.stage.api.clone();
    let userinfo = cage.canaries.plant("user and password of a URL");
    let (url, header, payload) = (cage.url.clone(), cage.header.clone(), cage.payload.clone());
    let secret = cage.canaries.plant("secret that is none");
    for endpoint in [
        json!({"url": format!("http://{userinfo}:{userinfo}@example.com/")}),
        json!({"url": format!("http://10.0.0.1/{url}?token={url}")}),
        json!({"url": format!("ftp://example.com/?token={url}")}),
        json!({"url": format!("http://example.com/?token={url}#{url}")}),
        json!({"url": "http://example.com/", "secret": format!("whsec_{secret}")}),
        json!({"url": "http://example.com/", "secret": secret}),
        json!({"url": "http://example.com/", "headers": {"x-auth": format!("{header}\n")}}),
        json!({"url": "http://example.com/", "headers": {"webhook-id": header}}),
        json!({"url": "http://example.com/", "headers": {"x-auth": [header]}}),
        json!({"url": "http://example.com/", "secret": [secret]}),
        json!({"url": "http://example.com/", "timeout_ms": secret}),
        json!({"url": "http://example.com/", "signing": {"schemes": [secret], "compat": secret}}),
        json!({"url": "http://example.com/", "signing": {"compat": {"kind": secret, "secret": [secret]}}}),
        json!({"url": "http://example.com/", "retry_policy": {"kind": "fixed", "delay_ms": secret, "max_attempts": 1}}),
    ] {
        let answer = api.post("/v1/endpoints", endpoint.to_string()).await;
        cage.refused(answer);
    }
    for body in [
        format!(r#"{{"type":"a.b","payload":{{"card":"{payload}""#),
        format!(r#"{{"type":"a.b","payload":"{payload}","type":"a.b"}}"#),
        format!(r#"{{"type":"a b","payload":"{payload}"}}"#),
        format!(r#"{{"type":"a.b","payload":"{payload}","metadata":{{"a":"{payload}\u0000"}}}}"#),
        format!(r#"["{payload}"]"#),
        format!("\"{payload}\""),
        format!("{payload}=1"),
    ] {
        let answer = api.post("/v1/events", body).await;
        cage.refused(answer);
    }
    let key = cage.key.clone();
    let keyed = async |path: &str, key: &str, body: Vec<u8>| {
        let request = api.request(Method::POST, path);
        let request = request.header("content-type", "application/json");
        Client::sent(request.header("idempotency-key", key).body(body)).await
    };
    keyed("/v1/events", &key, submission("a.b", b"1"))
        .await
        .expect(202);
    let answer = keyed("/v1/events", &key, submission("a.b", b"2")).await;
    cage.refused(answer);
    let endpoint = json!({"url": "http://example.com/", "event_types": ["none"]});
    keyed("/v1/endpoints", &key, endpoint.to_string().into())
        .await
        .expect(201);
    let answer = keyed("/v1/endpoints", &key, b"{}".into()).await;
    cage.refused(answer);
    let answer = keyed("/v1/events", &key.repeat(20), submission("a.b", b"1")).await;
    cage.refused(answer);
    let foreign = cage.canaries.plant("API key that is none");
    for key in [foreign.clone(), format!("ph_live_{foreign}")] {
        let answer = cage.stage.node.client(&key).get("/v1/events").await;
        cage.refused(answer);
    }
}

/// The words of a constraint's violation are short, and its details hold the whole row.
async fn the_database_refuses_rows(cage: &mut Cage) {
    let installation = cage.stage.installation.clone();
    installation
        .query("ALTER TABLE events ADD CONSTRAINT no_such_event CHECK (type <> 'refused.event') NOT VALID")
        .await;
    installation
        .query("ALTER TABLE attempts ADD CONSTRAINT no_such_reply CHECK (response_body IS NULL) NOT VALID")
        .await;
    let body = submission(
        "refused.event",
        json!({"card": cage.payload}).to_string().as_bytes(),
    );
    let answer = cage.stage.api.post("/v1/events", body).await;
    cage.refused(answer);
    cage.deliver("bad", "dead").await;
    let log = cage.stage.node.log();
    assert!(log.contains("an event was refused by the database"));
    installation
        .query("ALTER TABLE events DROP CONSTRAINT no_such_event")
        .await;
    installation
        .query("ALTER TABLE attempts DROP CONSTRAINT no_such_reply")
        .await;
}

async fn the_database_is_slow_and_away(cage: &mut Cage) {
    let endpoint = json!({
        "url": format!("http://example.com/?token={}", cage.url),
        "event_types": ["none"],
        "headers": {"x-auth": cage.header},
        "secret": cage.secret,
    })
    .to_string();
    let event = submission("ok", json!({"card": cage.payload}).to_string().as_bytes());
    let held = cage
        .stage
        .installation
        .hold("LOCK TABLE endpoints, events")
        .await;
    let (made, accepted, ()) = tokio::join!(
        cage.stage.api.post("/v1/endpoints", endpoint.clone()),
        cage.stage.api.post("/v1/events", event.clone()),
        async move {
            // Longer than what is told as slow.
            pause(Duration::from_millis(2500)).await;
            drop(held);
        }
    );
    assert_eq!((made.status, accepted.status), (201, 202));
    assert!(cage.stage.node.log().contains("slow statement"));
    cage.database.set(Way::Cut);
    for (path, body) in [
        ("/v1/endpoints", endpoint.into_bytes()),
        ("/v1/events", event),
    ] {
        let answer = cage.stage.api.post(path, body).await;
        cage.refused(answer);
    }
    let unready = cage.stage.node.client("").get("/readyz").await;
    cage.refusals.push(unready);
    cage.database.set(Way::Open);
    until("events to be accepted again", AMPLE, async || {
        let answer = cage
            .stage
            .api
            .post("/v1/events", submission("a.b", b"1"))
            .await;
        (answer.status == 202).then_some(())
    })
    .await;
}
