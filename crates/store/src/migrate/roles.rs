//! Posthorn's four roles, and how they stand to one another.
//!
//! `posthorn_owner` owns the schema and runs migrations. `posthorn_app` is only a login: it inherits
//! nothing and may act as `posthorn_tenant` (one tenant's rows) or `posthorn_system` (the engine).
//! NOINHERIT comes before the grants: up to PostgreSQL 15 inheritance is the member's own attribute, from
//! 16 on it is fixed by the grant, and a grant made too early would show a forgotten role every tenant.

use posthorn_domain::limits;
use sqlx::{AssertSqlSafe, Executor as _, PgConnection};

use super::{MigrateError, standing};
use crate::database::DatabaseError;

/// SQLSTATE `insufficient_privilege`.
const REFUSED: &str = "42501";

/// What PostgreSQL says when another transaction has done the same in the meantime: `duplicate_object`, a
/// `unique_violation` of the catalog, or (as `internal_error`) "tuple concurrently updated".
const MEANWHILE: [&str; 3] = ["42710", "23505", "XX000"];

/// A role and how it is made.
struct Role {
    name: &'static str,
    attributes: &'static str,
}

const ROLES: [Role; 4] = [
    Role {
        name: "posthorn_owner",
        attributes: "NOLOGIN",
    },
    Role {
        name: "posthorn_app",
        attributes: "LOGIN NOINHERIT",
    },
    Role {
        name: "posthorn_tenant",
        attributes: "NOLOGIN",
    },
    Role {
        name: "posthorn_system",
        attributes: "NOLOGIN",
    },
];

/// The SQL that makes all roles, for somebody to run by hand. `login` is who will run the migrations.
#[must_use]
pub fn roles_sql(server_version: i32, login: &str) -> String {
    let mut lines: Vec<String> = ROLES
        .iter()
        .map(|role| format!("{};", create(role)))
        .collect();
    lines.push(format!(
        "{};",
        grant(
            "posthorn_tenant, posthorn_system",
            "posthorn_app",
            server_version
        )
    ));
    lines.push(format!(
        "{};",
        grant("posthorn_owner", &quoted(login), server_version)
    ));
    lines.push(format!("{SCHEMA_GRANT};"));
    lines.join("\n")
}

/// Whether the roles are there and this login may neither make roles nor act as their owner.
pub(super) async fn are_made_by_others(
    connection: &mut PgConnection,
) -> Result<bool, DatabaseError> {
    let names: Vec<String> = ROLES.iter().map(|role| role.name.to_owned()).collect();
    let all_there = sqlx::query_scalar!(
        r#"SELECT count(*) = cardinality($1::text[]) AS "all!" FROM pg_roles WHERE rolname = ANY ($1::text[])"#,
        &names,
    )
    .fetch_one(&mut *connection)
    .await?;
    if !all_there {
        return Ok(false);
    }
    let version = standing::version_of(connection).await?;
    let login = standing::login_of(connection).await?;
    let may_make = sqlx::query_scalar!(
        r#"SELECT rolsuper OR rolcreaterole AS "may!" FROM pg_roles WHERE rolname = session_user"#
    )
    .fetch_one(&mut *connection)
    .await?;
    Ok(!may_make
        && !membership(connection, &login, "posthorn_owner", version)
            .await?
            .may_set)
}

/// Makes what is missing of roles, memberships and the right to make tables.
///
/// Roles belong to the cluster, and the lock of the migrations to one database: whoever prepares another database of the
/// cluster at the same moment does the same, and is not in the way.
pub(super) async fn ensure(connection: &mut PgConnection) -> Result<(), MigrateError> {
    let mut ensured = ensure_all(connection).await;
    for _ in 1..limits::ROLE_LOOKS {
        match &ensured {
            // Whoever was in the way has committed, so the next look sees it.
            Err(MigrateError::Database(source)) if has_code(source, &MEANWHILE) => {
                ensured = ensure_all(connection).await;
            }
            _ => break,
        }
    }
    match ensured {
        Err(MigrateError::Database(source)) if has_code(&source, &[REFUSED]) => {
            let version = standing::version_of(connection).await?;
            let login = standing::login_of(connection).await?;
            Err(MigrateError::CannotMakeRoles {
                sql: roles_sql(version, &login),
                source,
            })
        }
        other => other,
    }
}

/// Makes the roles alone, without anything that belongs to one database.
pub(super) async fn ensure_names(connection: &mut PgConnection) -> Result<(), MigrateError> {
    for role in &ROLES {
        let found = sqlx::query!(
            "SELECT rolinherit, rolsuper, rolbypassrls FROM pg_roles WHERE rolname = $1::text::name",
            role.name
        )
        .fetch_optional(&mut *connection)
        .await?;
        match found {
            None => make(connection, role).await?,
            Some(found) => {
                let may_all = found.rolsuper.unwrap_or(true) || found.rolbypassrls.unwrap_or(true);
                if may_all {
                    run(
                        connection,
                        format!("ALTER ROLE {} NOSUPERUSER NOBYPASSRLS", role.name),
                    )
                    .await?;
                }
                if role.name == "posthorn_app" && found.rolinherit.unwrap_or(true) {
                    run(connection, "ALTER ROLE posthorn_app NOINHERIT".to_owned()).await?;
                }
            }
        }
    }
    Ok(())
}

/// Makes a role. Somebody else may have made it since it was looked for; that is all that was wanted.
async fn make(connection: &mut PgConnection, role: &Role) -> Result<(), DatabaseError> {
    match run(connection, create(role)).await {
        Err(error) if has_code(&error, &MEANWHILE) => Ok(()),
        other => other,
    }
}

async fn ensure_all(connection: &mut PgConnection) -> Result<(), MigrateError> {
    ensure_names(connection).await?;
    let version = standing::version_of(connection).await?;
    for acting in ["posthorn_tenant", "posthorn_system"] {
        let stands = membership(connection, "posthorn_app", acting, version).await?;
        if !stands.may_set || stands.inherits {
            run(connection, grant(acting, "posthorn_app", version)).await?;
        }
    }
    let login = standing::login_of(connection).await?;
    // A superuser may act as anybody without a grant.
    if !membership(connection, &login, "posthorn_owner", version)
        .await?
        .may_set
    {
        run(
            connection,
            grant("posthorn_owner", &quoted(&login), version),
        )
        .await?;
    }
    let may_make = sqlx::query_scalar!(
        r#"SELECT has_schema_privilege('posthorn_owner', 'public', 'CREATE')
              AND has_schema_privilege('posthorn_owner', 'public', 'USAGE') AS "may!""#
    )
    .fetch_one(&mut *connection)
    .await?;
    if !may_make {
        run(connection, SCHEMA_GRANT.to_owned()).await?;
    }
    Ok(())
}

/// The tables live in `public`, which belongs to whoever owns the database.
const SCHEMA_GRANT: &str = "GRANT CREATE, USAGE ON SCHEMA public TO posthorn_owner";

/// How one role stands to another.
struct Membership {
    may_set: bool,
    inherits: bool,
}

async fn membership(
    connection: &mut PgConnection,
    member: &str,
    role: &str,
    version: i32,
) -> Result<Membership, DatabaseError> {
    // Before 16 a member may always SET ROLE.
    let to_set = if version >= 160_000 { "SET" } else { "MEMBER" };
    let row = sqlx::query!(
        r#"SELECT pg_has_role($1::text::name, $2::text::name, $3) AS "may_set!",
                  pg_has_role($1::text::name, $2::text::name, 'USAGE') AS "inherits!""#,
        member,
        role,
        to_set,
    )
    .fetch_one(connection)
    .await?;
    Ok(Membership {
        may_set: row.may_set,
        inherits: row.inherits,
    })
}

fn create(role: &Role) -> String {
    format!("CREATE ROLE {} {}", role.name, role.attributes)
}

fn grant(roles: &str, member: &str, version: i32) -> String {
    let options = if version >= 160_000 {
        " WITH INHERIT FALSE, SET TRUE"
    } else {
        ""
    };
    format!("GRANT {roles} TO {member}{options}")
}

/// An identifier as SQL wants it.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Statements about roles take no parameters; every part of them is a constant or quoted.
async fn run(connection: &mut PgConnection, sql: String) -> Result<(), DatabaseError> {
    connection.execute(AssertSqlSafe(sql)).await?;
    Ok(())
}

fn has_code(error: &DatabaseError, codes: &[&str]) -> bool {
    error.code().is_some_and(|code| codes.contains(&code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noinherit_comes_before_the_grants() {
        let sql = roles_sql(150_000, "admin");
        assert!(sql.find("posthorn_app LOGIN NOINHERIT").unwrap() < sql.find("GRANT").unwrap());
    }

    #[test]
    fn a_grant_says_that_nothing_is_inherited_where_it_can() {
        assert_eq!(grant("a", "b", 150_004), "GRANT a TO b");
        assert_eq!(
            grant("a", "b", 180_000),
            "GRANT a TO b WITH INHERIT FALSE, SET TRUE"
        );
    }

    #[test]
    fn a_login_with_a_quote_in_its_name_stays_one_identifier() {
        assert_eq!(quoted("a\"b"), "\"a\"\"b\"");
    }
}
