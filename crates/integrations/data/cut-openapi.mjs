// Cuts the operations that Pawl uses out of GitHub's OpenAPI description, with the schemas they refer to.
//
//   npm pack @octokit/openapi@23.0.2 && tar xzf octokit-openapi-23.0.2.tgz
//   node cut-openapi.mjs package/generated/api.github.com.json > github-openapi.json
//
// What only people read (descriptions, examples, links) is left out; what a machine can check is kept word for word.

import { readFileSync } from 'node:fs';

const OPERATIONS = [
  ['post', '/app/installations/{installation_id}/access_tokens'],
  ['get', '/repos/{owner}/{repo}'],
  ['get', '/repos/{owner}/{repo}/branches'],
  ['post', '/repos/{owner}/{repo}/check-runs'],
  ['get', '/repos/{owner}/{repo}/check-runs/{check_run_id}'],
  ['patch', '/repos/{owner}/{repo}/check-runs/{check_run_id}'],
  ['get', '/repos/{owner}/{repo}/collaborators/{username}/permission'],
  ['get', '/repos/{owner}/{repo}/commits/{ref}'],
  ['get', '/repos/{owner}/{repo}/commits/{ref}/check-runs'],
  ['get', '/repos/{owner}/{repo}/commits/{ref}/statuses'],
  ['get', '/repos/{owner}/{repo}/compare/{basehead}'],
  ['get', '/repos/{owner}/{repo}/git/trees/{tree_sha}'],
  ['get', '/repos/{owner}/{repo}/issues/comments'],
  ['get', '/repos/{owner}/{repo}/issues/{issue_number}/comments'],
  ['post', '/repos/{owner}/{repo}/issues/{issue_number}/comments'],
  ['get', '/repos/{owner}/{repo}/pulls'],
  ['get', '/repos/{owner}/{repo}/pulls/{pull_number}'],
  ['get', '/repos/{owner}/{repo}/pulls/{pull_number}/files'],
  ['post', '/repos/{owner}/{repo}/statuses/{sha}'],
];

const FOR_PEOPLE = ['description', 'summary', 'example', 'examples', 'externalDocs', 'tags', 'title', 'deprecated'];

const whole = JSON.parse(readFileSync(process.argv[2], 'utf8'));
const components = {};

// Inside `properties` the keys are names of GitHub's, not words of OpenAPI.
function cut(value, names = false) {
  if (Array.isArray(value)) return value.map((item) => cut(item));
  if (value === null || typeof value !== 'object') return value;
  if (typeof value.$ref === 'string') keep(value.$ref);
  const kept = Object.entries(value).filter(
    ([key]) => names || !(FOR_PEOPLE.includes(key) || key.startsWith('x-')),
  );
  return Object.fromEntries(kept.map(([key, inner]) => [key, cut(inner, !names && key === 'properties')]));
}

function keep(reference) {
  const [, , section, name] = reference.split('/');
  components[section] ??= {};
  if (name in components[section]) return;
  components[section][name] = null;
  components[section][name] = cut(whole.components[section][name]);
}

const paths = {};
for (const [method, path] of OPERATIONS) {
  const { operationId, parameters, requestBody, responses } = whole.paths[path][method];
  paths[path] ??= {};
  paths[path][method] = cut({ operationId, parameters, requestBody, responses });
}

// One line per operation and per schema, so that a later version shows what it changes.
const lines = (object, write) =>
  `{\n${Object.keys(object).sort().map((key) => `${JSON.stringify(key)}: ${write(object[key])}`).join(',\n')}\n}`;
const sorted = { paths: lines(paths, (path) => lines(path, JSON.stringify)) };
sorted.components = lines(components, (section) => lines(section, JSON.stringify));
sorted.openapi = JSON.stringify(whole.openapi);
sorted.info = JSON.stringify({ title: whole.info.title, version: whole.info.version, license: whole.info.license });
process.stdout.write(`${lines(sorted, (text) => text)}\n`);
